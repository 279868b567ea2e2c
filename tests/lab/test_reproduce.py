"""The command ``spectralgrad reproduce``: what it prints and writes, its exit status, and the committed pages."""

import json
import math
import re
from collections import Counter
from functools import cache

import pytest
from rich.cells import cell_len

from spectralgrad.cli import main
from spectralgrad_lab.papers import command, registry, run_item, terminal_text
from spectralgrad_lab.papers.items import ItemError, all_items, papers, select
from spectralgrad_lab.papers.outcomes import draw, file_of, read_all, write
from spectralgrad_lab.papers.pages import write_pages
from spectralgrad_lab.papers.pages.counts import classes, counted_items, experiments, in_words
from spectralgrad_lab.papers.pages.markdown import plain
from spectralgrad_lab.papers.verdicts import MEANINGS, NOT_RUN, SYMBOLS, VERDICTS, WEIGHTS

from ..documents import ROOT, in_one_line, text

RESULTS, PAGES = ROOT / "docs" / "results" / "papers", ROOT / "docs" / "papers"
QUICK = "neurips/B9"  # agrees up to rounding
DISAGREEING = "neurips/B13"  # numbers
AGREEING = "neurips/B14"


@cache
def committed():
    return read_all(RESULTS)


def reproduce(capsys, *arguments):
    status = main(["reproduce", *map(str, arguments)])
    return status, capsys.readouterr()


class TestRunning:
    def test_a_disagreeing_verdict_is_no_error(self, capsys, tmp_path, monkeypatch):
        monkeypatch.setenv("COLUMNS", "160")
        status, said = reproduce(capsys, DISAGREEING, "--results", tmp_path)
        assert status == 0
        head = next(line for line in said.out.splitlines() if "published" in line)
        assert head.split() == ["published", "test", "computed", "expected", "verdict"]
        assert "neurips/B13  Table 2 · numbers\n" in said.out
        assert "“SVD, d = 4: Min 4.59, Mean 4.54 ± 0.08" in said.out
        assert "neurips/B13  ≠ does not agree  A minimum cannot be above the mean, here by 0.05." in said.out
        assert "1 item: 1 does not agree." in said.out

    def test_what_is_stored(self, capsys, tmp_path):
        reproduce(capsys, QUICK, "--results", tmp_path)
        (item,) = select([QUICK])
        stored = json.loads(file_of(item, tmp_path).read_text("utf-8"))
        assert stored["verdict"] == "agrees up to rounding"
        assert (stored["weight"], stored["quote"], stored["same_as"]) == ("numbers", item.quote, "")
        assert stored["claim"] == item.claim
        assert stored["seconds"] >= 0
        assert [q["name"] for q in stored["quantities"]] == [q.name for q in item.quantities]
        first = stored["quantities"][0]
        assert first["ours"] == stored["values"]["left_out"] == pytest.approx([r**19 for r in (0.84, 0.85, 0.86)])
        assert (first["published"], first["test"]) == ("≤ 0.05", "<= 0.05 ~ 0.01")
        assert first["as_expected"] is True
        assert sorted(p.suffix for p in tmp_path.rglob("*.*")) == [".json"]

    def test_many_items_are_shown_in_a_line_each(self, capsys, tmp_path):
        names = ["B7", "B8", "B9", "B10", "B11", "B13", "B14"]
        _, said = reproduce(capsys, *names, "--results", tmp_path)
        assert "computed" not in said.out
        assert all(f"neurips/{name}  " in said.out for name in names)
        assert "7 items: 2 agree, 1 agrees up to rounding, 1 does not agree, 3 are ambiguous." in said.out
        _, said = reproduce(capsys, *names, "--results", tmp_path, "--details")
        assert said.out.count("computed") == len(names)

    def test_an_error_leaves_the_other_items(self, capsys, tmp_path, monkeypatch):
        def fail():
            raise ZeroDivisionError("no luck")

        monkeypatch.setattr(run_item, "compute_of", lambda key: fail if key == QUICK else registry.compute_of(key))
        status, said = reproduce(capsys, QUICK, AGREEING, "--results", tmp_path)
        assert status == 1
        assert "neurips/B9: ZeroDivisionError: no luck" in said.out
        assert "2 items: 1 agrees, 1 failed." in " ".join(said.out.split())
        assert [file.stem for file in tmp_path.rglob("*.json")] == ["B14"]

    def test_a_value_that_is_not_as_recorded_is_marked(self, capsys, tmp_path, monkeypatch):
        wrong = {"left_out": [0.0, 0.0, 0.0], "needed": 19}
        monkeypatch.setattr(run_item, "compute_of", lambda key: lambda: wrong)
        status, said = reproduce(capsys, QUICK, "--results", tmp_path)
        assert status == 0
        assert "! neurips/B9" in said.out
        assert "1 came out differently from what is recorded" in said.out

    def test_an_unknown_name(self, capsys):
        status, said = reproduce(capsys, "neurips/table-99")
        assert status == 1
        assert "no item is called 'neurips/table-99'; `spectralgrad reproduce list` shows all of them" in said.err
        assert "Traceback" not in said.err

    def test_a_paper_is_run_without_its_training(self, monkeypatch):
        ran = []
        monkeypatch.setattr(command, "_run_all", lambda items, *_: ran.extend(items) or 0)
        assert main(["reproduce", "neurips"]) == 0
        assert {item.paper for item in ran} == {"neurips"}
        assert "training" not in {item.kind for item in ran}

    def test_the_bar_says_how_long_a_slow_item_takes(self):
        slow, quick = (command._working_on(*select([name])) for name in ("eccv/figure-5", QUICK))
        assert re.fullmatch(r"eccv/figure-5, about \d+ (s|min)", slow)
        assert quick == QUICK


class TestListing:
    @pytest.mark.parametrize("columns", [80, 160])
    def test_every_item_with_its_claim_and_verdict(self, capsys, monkeypatch, columns):
        monkeypatch.setenv("COLUMNS", str(columns))
        status, said = reproduce(capsys, "list")
        assert status == 0
        assert max(map(cell_len, said.out.splitlines())) <= columns
        starts = {line.split(" ")[0] for line in said.out.splitlines()}
        assert {item.key for item in all_items()} <= starts
        counts = terminal_text.counted(Counter(item.verdict for item in all_items()))
        assert f"{len(all_items())} items (" in said.out
        assert counts in " ".join(said.out.split())
        assert "no code yet" not in said.out

    def test_of_one_item(self, capsys, monkeypatch):
        monkeypatch.setenv("COLUMNS", "80")
        _, said = reproduce(capsys, "list", QUICK)
        assert said.out.startswith("neurips/B9  Sec. 2.4 · analytic · < 1 s · ≈ agrees up to rounding\n    the average")
        assert "1 item (1 analytic), about < 1 s" not in said.out
        summary = "1 item (1 analytic), < 1 s on two cores. Recorded verdicts: 1 agrees up to rounding."
        assert summary in " ".join(said.out.split())


class TestStoring:
    def test_nan_and_infinity_come_back(self, tmp_path):
        (item,) = select(["tpami/R23"])
        outcome = run_item.run(item)
        assert math.isinf(outcome.values["norm"])
        write(outcome, tmp_path)
        assert read_all(tmp_path)["tpami/R23"].as_json() == json.loads(file_of(item, tmp_path).read_text("utf-8"))

    def test_a_file_without_a_needed_value(self, tmp_path):
        (item,) = select([QUICK])
        file = file_of(item, tmp_path)
        file.parent.mkdir()
        file.write_text('{"seconds": 1, "values": {"needed": 20}}')
        with pytest.raises(ItemError, match="neurips/B9: its function does not return 'left_out'"):
            read_all(tmp_path)

    def test_pictures_are_drawn_from_what_is_stored(self, tmp_path):
        outcome = committed()["tpami/figure-7"]
        assert draw(outcome, tmp_path / "a.svg", tmp_path / "b.svg", tmp_path / "a.png")
        assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
        assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
        assert not draw(committed()[QUICK], tmp_path / "c.svg")
        assert not (tmp_path / "c.svg").exists()


class TestPages:
    def test_of_a_few_results(self, capsys, tmp_path):
        results, out = tmp_path / "results", tmp_path / "pages"
        reproduce(capsys, QUICK, AGREEING, "--results", results)
        status, said = reproduce(capsys, "pages", "--results", results, "--out", out)
        assert status == 0
        assert said.out.count("wrote ") == 1 + len(papers())
        page = (out / "neurips.md").read_text("utf-8")
        assert "| [B9](#b9) | Sec. 2.4 |" in page
        assert "\n### B9\n\n*Sec. 2.4 · numbers:* The average ratio lies in \\[0.84, 0.86\\]" in page
        assert "\n> In CIFAR-10, using ResNet18, we observed that the average λi/λi−1 lies in" in page
        assert '**<span class="verdict-agrees">≈&nbsp;agrees up to rounding</span>.** 0.84¹⁹' in page
        assert "| ≤ 0.05 | ≤ 0.05, ≈ within 0.01 | 0.03642, 0.0456, 0.05695 |" in page
        assert "`spectralgrad reproduce neurips/B9` (< 1 s) · [all values](../results/neurips/B9.json)" in page
        assert "Not run. `spectralgrad reproduce neurips/B10` takes about" in page
        index = (out / "index.md").read_text("utf-8")
        assert "not run | items |" in index
        assert all(plain(MEANINGS[verdict]) in index for verdict in VERDICTS)
        assert all(plain(meaning) in index for meaning in WEIGHTS.values())

    def test_the_heaviest_come_first_and_misprints_are_folded(self):
        page = text(PAGES / "tpami.md")
        places = [page.index(f"\n## {title}\n") for title in ("Results", "Analysis", "Numbers", "Scope", "Errata")]
        assert places == sorted(places)
        folded = page[places[-1] :]
        assert '<details markdown="1">\n<summary>2 items</summary>\n\n' in folded
        assert folded.index("<details") < folded.index("### R31") < folded.index("</details>")
        assert page.index("### R32") < places[1] < page.index("### R28") < places[2]

    def test_a_duplicate_says_where_it_is_counted(self):
        assert "The same matter as [B13](neurips.md#b13), where it is counted." in text(PAGES / "tpami.md")
        assert "The same matter as [O15](#o15), where it is counted." in text(PAGES / "eccv.md")

    def test_our_own_statements_are_on_a_page_of_their_own(self):
        assert [paper.name for paper in papers() if paper.own] == ["gradients"]
        assert "These statements are ours." in text(PAGES / "gradients.md")
        assert not {item.paper for item in counted_items()} & {"gradients"}

    def test_without_results(self, capsys, tmp_path):
        status, said = reproduce(capsys, "pages", "--results", tmp_path / "none", "--out", tmp_path / "pages")
        assert status == 1
        assert "no results in" in said.err
        assert not (tmp_path / "pages").exists()

    def test_markup_in_texts_is_escaped(self):
        assert plain("‖WY‖_F = |λ_i| < a*b `c` [d](e)") == "‖WY‖\\_F = \\|λ\\_i\\| &lt; a\\*b \\`c\\` \\[d\\](e)"

    def test_signs_tell_the_verdicts_apart(self):
        assert len(set(SYMBOLS.values())) == len(VERDICTS) == len(MEANINGS)


class TestCommitted:
    """docs/results/papers and docs/papers; made by the commands in docs/reproduce.md."""

    def test_every_item_has_a_result_or_says_that_it_has_not_been_run(self):
        missing = [item.key for item in all_items() if item.key not in committed()]
        waiting = [item.key for item in all_items() if item.verdict == NOT_RUN]
        assert missing == waiting, "run: spectralgrad reproduce ITEM --results docs/results/papers"
        assert all(item.kind == "training" for item in all_items() if item.verdict == NOT_RUN)

    def test_results_are_as_expected_and_up_to_date(self):
        for key, outcome in committed().items():
            stored = json.loads(file_of(outcome.item, RESULTS).read_text("utf-8"))
            assert outcome.as_expected, key
            assert outcome.as_json() == stored, f"{key}: run `spectralgrad reproduce pages` as in docs/reproduce.md"

    def test_no_result_is_left_of_an_item_that_is_gone(self):
        files = {file.relative_to(RESULTS).with_suffix("").as_posix() for file in RESULTS.rglob("*.json")}
        assert files <= {item.key for item in all_items()}

    def test_the_pages_are_what_the_command_writes(self, tmp_path):
        results, folder = tmp_path / "docs" / "results" / "papers", tmp_path / "docs" / "papers"
        written = write_pages(committed(), results, folder, pictures=False)
        assert {file.name for file in written} == {file.name for file in PAGES.glob("*.md")}
        for file in written:
            assert file.read_text("utf-8") == text(PAGES / file.name), "run `spectralgrad reproduce pages`"

    def test_every_picture_is_there_and_no_other(self):
        items = [outcome.item for outcome in committed().values()]
        drawn = {f"{item.paper}-{item.id}.svg" for item in items if registry.draw_of(item.key)}
        assert {file.name for file in (PAGES / "images").iterdir()} == drawn

    def test_they_are_small(self):
        assert sum(file.stat().st_size for file in RESULTS.rglob("*.json")) < 1.5e6
        assert sum(file.stat().st_size for file in (PAGES / "images").iterdir()) < 2.5e6

    def test_the_readme_has_the_counts(self):
        sentence = in_words(committed())
        for page in (ROOT / "README.md", PAGES / "index.md", ROOT / "docs" / "reproduce.md"):
            assert sentence in in_one_line(page), page.name

    def test_each_matter_is_counted_once(self):
        found, tried = classes(committed()), experiments(committed())
        counted = [o for key, o in committed().items() if not o.item.same_as and o.item.paper != "gradients"]
        assert found.total() + tried.total() - tried[NOT_RUN] == len(counted)
        wrong = [o for o in counted if o.verdict == "does not agree" and o.item.weight == "result"]
        assert found["result", "does not agree"] == len(wrong)

    def test_the_sentence_names_the_classes(self):
        kept = {key: committed()[key] for key in ("neurips/B13", "neurips/B14", "neurips/B7", "iccv/figure-2-left")}
        words = in_words(kept)
        assert " 1 agree, 1 can be read" in words
        assert "and 1 do not agree: 1 number; of " in words
        others = experiments({}).total() - 1
        assert words.endswith(f"on a CPU, 1 shows the published direction and {others} were not run.")
