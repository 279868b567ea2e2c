"""The pages of the papers in Markdown, written from the outcomes of their items."""

from .page import write_pages

__all__ = ["write_pages"]
