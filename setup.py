"""Builds the native kernel beside the package. Where that fails, the installation goes on without it."""

import importlib.util
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

NATIVE = Path(__file__).parent / "spectralgrad" / "native"


class BuildKernel(build_ext):
    """Hands the one extension to spectralgrad/native/build.py; it is a plain shared library, not a Python module."""

    def build_extension(self, ext):
        """Build the kernel, or say why it is not there."""
        spec = importlib.util.spec_from_file_location("spectralgrad_native_build", NATIVE / "build.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        try:
            module.build(Path(self.get_ext_fullpath(ext.name)), Path(self.build_temp))
        except (OSError, subprocess.CalledProcessError) as problem:
            detail = getattr(problem, "stderr", "") or problem
            print(f"spectralgrad: the native kernel was not built, torch.linalg will serve: {detail}", file=sys.stderr)


class NoModule(Extension):
    """An extension whose absence after the build is no error."""


setup(
    ext_modules=[NoModule("spectralgrad.native._kernel", sources=[], optional=True)],
    cmdclass={"build_ext": BuildKernel},
)
