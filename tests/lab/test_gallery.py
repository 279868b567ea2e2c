"""The gallery: what stands in which cell, the command, and bad input."""

import pytest
import torch

from spectralgrad import cli
from spectralgrad.errors import ShapeError
from spectralgrad_lab.transfer import find_picture, read_picture, transfer_color
from spectralgrad_lab.transfer.gallery import Look, Transfer, gallery, looks
from spectralgrad_lab.transfer.pictures.contact_sheet import Row, contact_sheet
from spectralgrad_lab.transfer.translation import Translator, train_translation

from .translation_runs import TINY, pictures

SIDE, GAP = 32, 6
LINE = 11 + GAP  # letters and the gap below them


def cell(sheet, row_top, column):
    left = GAP + column * (SIDE + GAP)
    return sheet[:, row_top : row_top + SIDE, left : left + SIDE]


def level(picture):
    """As the sheet holds it, in 8 bits."""
    return picture.clamp(0, 1).mul(255).round().div(255)


def test_each_picture_is_in_its_place():
    torch.manual_seed(0)
    pictures = torch.rand(5, 3, SIDE, SIDE)
    heads = [("one", pictures[0]), ("two", pictures[1])]
    sheet = contact_sheet(heads, [Row(pictures[2], "a", [pictures[3], pictures[4]])], SIDE)
    top = GAP + LINE
    for place, picture in {(top, 1): 0, (top, 2): 1}.items():
        torch.testing.assert_close(cell(sheet, *place), level(pictures[picture]))
    for column, picture in enumerate((2, 3, 4)):
        torch.testing.assert_close(cell(sheet, top + SIDE + GAP, column), level(pictures[picture]))


def test_pictures_are_cropped_around_their_center():
    wide = torch.zeros(3, 10, 30)
    wide[:, :, 10:20] = 1
    sheet = contact_sheet([("wide", wide)], [], SIDE)
    assert cell(sheet, GAP + LINE, 1).min() == 1


def test_a_row_of_another_length():
    with pytest.raises(ShapeError, match="contact_sheet: expected 1 cells in a row, got 2"):
        contact_sheet([("one", torch.rand(3, 8, 8))], [Row(None, "", [torch.rand(3, 8, 8)] * 2)], SIDE)


def test_long_names_are_shortened():
    picture = torch.rand(3, 8, 8)
    short, long = (contact_sheet([(name, picture)], [], SIDE) for name in ("a", "a very long name indeed"))
    assert short.shape == long.shape
    assert (long[:, : LINE + GAP // 2, -GAP:] == 1).all()


def test_every_content_with_every_style_and_look():
    torch.manual_seed(0)
    contents, styles = (dict(zip("ab", torch.rand(2, 3, SIDE, SIDE), strict=True)) for _ in range(2))
    done = []
    sheet = gallery(contents, styles, looks(["color"], ["exact"], [0.0, 1.0]), side=SIDE, report=done.append)
    assert sum(done) == 8
    first = GAP + LINE + SIDE + GAP
    unchanged, changed = first, first + SIDE + GAP + 2 * LINE
    torch.testing.assert_close(cell(sheet, unchanged, 2), level(contents["a"]))
    wanted = transfer_color(contents["a"], styles["b"], noise=0.5 / 255)
    torch.testing.assert_close(cell(sheet, changed, 2), level(wanted))


def test_the_command(tmp_path, capsys):
    out = tmp_path / "sheet.png"
    arguments = ["--contents", "cat", "--styles", "night_cafe,harvest", "--size", "48", "--cell", "32"]
    assert cli.main(["transfer", "gallery", *arguments, "--methods", "exact,newton-schulz", "-o", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: 4 pictures, 120×171 pixels\n"
    assert read_picture(out).size == (171, 120)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--contents", "dog"], "no such file, nor a picture of the lab"),
        (["--methods", "nonsense"], "unknown method 'nonsense'"),
        (["--kinds", "color,style"], "--encoder is required"),
        (["--size", "4"], "expected at least 16, got 4 and 192"),
        (["--out", "missing/sheet.png"], "missing"),
        (["--out", "sheet.xyz"], "sheet.xyz"),
    ],
)
def test_bad_input(arguments, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["transfer", "gallery", *arguments]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [["--kinds", "sound"], ["--strengths", "2"], ["--strengths", "much"]])
def test_wrong_usage(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["transfer", "gallery", *arguments])
    assert ended.value.code == 2
    assert "expected" in capsys.readouterr().err


def test_translations_are_rows_named_by_their_runs(tmp_path, capsys):
    run, sheet = tmp_path / "exact", tmp_path / "sheet.png"
    train_translation(TINY.replaced(**pictures(tmp_path), steps=1), run)
    common = ["transfer", "gallery", "--contents", "cat", "--styles", "harvest", "--size", "32", "--cell", str(SIDE)]
    assert cli.main([*common, "--kinds", "color,translation", "--runs", str(run), "-o", str(sheet)]) == 0
    assert "2 pictures" in capsys.readouterr().out
    content, style = (read_picture(find_picture(name), longest=32).rgb for name in ("cat", "harvest"))
    translator = Translator.load(run)
    transfer, look = Transfer(translators={"exact": translator}), Look("translation", "exact", 1.0)
    torch.testing.assert_close(transfer(content, style, look), translator(content, style))
    wanted = [*looks(["color"], ["exact"], [1.0]), look]
    expected = gallery({"cat": content}, {"harvest": style}, wanted, transfer, side=SIDE)
    torch.testing.assert_close(read_picture(sheet).rgb, level(expected))
    for wrong in (
        ["--kinds", "translation"],
        ["--runs", str(run)],
        ["--runs", f"{run},{run}", "--kinds", "translation"],
    ):
        assert cli.main([*common, *wrong, "-o", str(sheet)]) == 1
        assert "expected" in capsys.readouterr().err
