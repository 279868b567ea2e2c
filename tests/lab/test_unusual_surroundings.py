"""Pipes among images, no memory, too many threads, code that exits, unwritable files: one clear line each."""

import os
import socket
import struct
import time
import zlib

import pytest
import torch
from PIL import Image

from spectralgrad.cli import main
from spectralgrad.io.memory import out_of_memory
from spectralgrad_lab import Config, Epoch, Result, ResultsFile, train
from spectralgrad_lab.data import DataError, load
from spectralgrad_lab.data.image_files import ImageFiles
from spectralgrad_lab.training.config.run_config import ConfigError
from spectralgrad_lab.transfer.pictures import PictureError, read_picture
from spectralgrad_lab.transfer.pictures.random_crops import RandomCrops

from .. import forked

SMALL = ["train", "--train-size", "64", "--test-size", "64", "--batch-size", "32", "--epochs", "1", "--no-tensorboard"]
GOOD = Result(Config(epochs=1), "done", [Epoch(0, 0.05, 2.0, 40.0, 1.5, 30.0, 3.0, 700.0, 20.0, 200.0, 16, "exact")])


def command(*arguments):
    """The exit status of a command."""
    try:
        return main([str(argument) for argument in arguments])
    except SystemExit as end:
        return end.code


# --- images


@pytest.fixture
def pictures(tmp_path):
    for part in ("train", "val"):
        (tmp_path / part / "cat").mkdir(parents=True)
        Image.new("RGB", (8, 8), "red").save(tmp_path / part / "cat" / "a.png")
    return tmp_path


def put_pipe(path):
    os.mkfifo(path)


def put_socket(path):
    os.chdir(path.parent)  # the names of sockets are short
    socket.socket(socket.AF_UNIX).bind(path.name)


def put_folder(path):
    path.mkdir()


def put_dead_link(path):
    path.symlink_to("nowhere")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes")
@pytest.mark.parametrize("put", [put_pipe, put_socket, put_folder, put_dead_link])
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_only_files_are_opened_as_images(put, pictures, monkeypatch):
    """Opening a named pipe waits for a writer, perhaps for ever."""
    monkeypatch.chdir(pictures)
    strange = pictures / "train" / "cat" / "b.png"
    put(strange)
    with pytest.raises(DataError, match=r"b\.png: expected an image file"):
        load("folder", pictures)
    with pytest.raises(DataError, match=r"b\.png: expected an image file"):
        RandomCrops(strange.parent, size=4, resize=4)
    with pytest.raises(DataError, match=r"b\.png: (not a file|no such file)"):  # lists of files name them, too
        ImageFiles(strange.parent, ["b.png"], resize=8, crop=8).read(0)


def test_an_image_file_starts_no_other_program(pictures):
    """Pillow would give PostScript to Ghostscript, whatever the name of the file."""
    text = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n%%EOF\n"
    (pictures / "train" / "cat" / "a.png").write_bytes(text)
    with pytest.raises(DataError, match=r"a\.png: cannot be decoded \(cannot identify"):
        ImageFiles(pictures / "train" / "cat", ["a.png"], resize=8, crop=8).read(0)


@pytest.mark.parametrize("ending", ["tif", "tiff", "gif", "TIFF"])
def test_tiff_and_gif_are_read(ending, pictures):
    folder = pictures / "train" / "cat"
    Image.new("RGB", (8, 8), "blue").save(folder / f"b.{ending}")
    assert len(RandomCrops(folder, size=4, resize=4)) == 2
    images = load("folder", pictures).train.images
    assert images.names == ("cat/a.png", f"cat/b.{ending}")
    assert images.read(1).flatten(1)[:, 0].tolist() == [0, 0, 255]


def test_the_limit_of_pixels_is_named_as_a_flag(tmp_path, capsys):
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")]
    raw = b"".join(struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks)
    (tmp_path / "huge.png").write_bytes(b"\x89PNG\r\n\x1a\n" + raw)
    assert command("transfer", "color", tmp_path / "huge.png", "cat", "-o", tmp_path / "x.png") == 1
    assert "raise --max-pixels (transfer color) or max_pixels= (in Python)" in capsys.readouterr().err
    with pytest.raises(PictureError, match="exceed the limit of 134217728"):
        read_picture(tmp_path / "huge.png")


# --- memory, threads, devices


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_running_out_of_memory_is_one_line_with_advice(tmp_path):
    code = (
        "import resource, sys, torch; from spectralgrad.cli import main; torch.set_num_threads(1)\n"
        "import spectralgrad_lab.commands.train, spectralgrad_lab.training.loop.run\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 2**29,) * 2)\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    size = ["--width", "2000", "--batch-size", "2000", "--no-tensorboard", "--out", tmp_path / "run"]
    done = forked.run("-c", code, "train", *size, timeout=120)
    assert done.returncode == 1
    said = done.stderr.splitlines()
    assert len(said) == 1, done.stderr
    assert said[0].startswith("spectralgrad train: out of memory")
    assert said[0].endswith("try a smaller --batch-size or --threads")


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (MemoryError(), "out of memory"),
        (MemoryError("Unable to allocate 7.45 GiB for an array"), "out of memory: could not allocate 7.45 GiB"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB."),
         "out of memory: could not allocate 20.00 GiB"),
        (RuntimeError("std::bad_alloc"), "out of memory"),
        (RuntimeError("size mismatch"), ""),
        (ValueError("x"), ""),
    ],
)  # fmt: skip
def test_errors_of_memory_are_recognized(problem, text):
    assert out_of_memory(problem) == text


def test_other_runtime_errors_keep_their_traceback(monkeypatch, tmp_path):
    def failing(*_, **__):
        raise RuntimeError("x")

    monkeypatch.setattr("spectralgrad_lab.commands.train.train", failing)
    with pytest.raises(RuntimeError, match="x"):
        command(*SMALL, "--out", tmp_path / "run")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--threads", "100000"], f"--threads: expected 1 to {4 * os.cpu_count()}, as this machine has"),
        (["--device", "meta"], "--device: expected auto, cpu, or a GPU that torch can use, got 'meta'"),
        (["--data", ""], "argument --data: expected text, got an empty text"),
        (["--out", ""], "argument --out: expected a path, got an empty text"),
        (["--hybrid", "svd-pade", "--milestones", "1", "--epochs", "9", "--warmup-epochs", "7"],
         "--warmup-epochs: 7 do not fit"),
    ],
)  # fmt: skip
def test_values_that_cannot_work_are_refused(flags, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command(*SMALL, *flags) == 2
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_benchmarks_refuse_too_many_threads_too(capsys):
    assert command("bench", "layers", "--threads", "100000") == 1
    assert "threads: expected 1 to" in capsys.readouterr().err


# --- code that exits


class Leaving(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, _):
        raise SystemExit(0)


class LeavingNet(torch.nn.Linear):
    def forward(self, *_):
        raise SystemExit(0)


def leaving(folder=None):
    raise SystemExit(0)


def leaving_later():
    return Leaving(), Leaving()


def leaving_net(classes):
    raise SystemExit(0)


def net_that_leaves(classes):
    return LeavingNet(784, classes)


@pytest.mark.parametrize(
    "flags",
    [
        ["--dataset", f"{__name__}:leaving"],
        ["--dataset", f"{__name__}:leaving_later"],
        ["--network", f"{__name__}:leaving_net"],
        ["--network", f"{__name__}:net_that_leaves"],
        ["--dataset", "leaving_module:images"],
    ],
    ids=lambda flags: flags[1].rpartition(":")[2],
)
def test_code_that_exits_ends_a_run_with_an_error(flags, tmp_path, monkeypatch, capsys):
    (tmp_path / "leaving_module.py").write_text("import sys\nsys.exit(0)\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    assert command(*SMALL, *flags, "--out", tmp_path / "run") in (1, 2)
    assert "called exit(0)" in capsys.readouterr().err
    if "--dataset" in flags:
        assert command("compare", *SMALL[1:], *flags, "--jobs", "1", "--out", tmp_path / "compared") == 1
        assert "called exit(0)" in capsys.readouterr().err


# --- files that cannot be written


WRITERS = [
    ["bench", "--json"], ["bench", "--plot"], ["bench", "--report"], ["bench", "layers", "--json"],
    ["bench", "group-whitening", "--json"], ["bench", "treatments", "--json"], ["bench", "condition-curves", "--json"],
    ["bench", "condition-curves", "--plot"], ["bench", "eigsh", "--json"], ["bench", "renewed", "nowhere", "--json"],
    ["bench", "renewed", "nowhere", "--plot"], ["conformance", "--json"], ["conformance", "--plot"], ["fuzz", "--json"],
    ["report", "RESULTS", "--out"], ["transfer", "color", "cat", "coffee", "-o"],
    ["transfer", "gallery", "-o"],
]  # fmt: skip


@pytest.mark.parametrize("words", WRITERS, ids=" ".join)
def test_a_file_that_cannot_be_written_is_found_before_the_work(words, tmp_path, capsys):
    """Each of these would work for seconds to minutes first."""
    ResultsFile(tmp_path / "results.jsonl").append(GOOD)
    words = [str(tmp_path) if word == "RESULTS" else word for word in words]
    (tmp_path / "file").touch()
    (tmp_path / "folder.png").mkdir()
    began = time.perf_counter()
    for place in ("missing/x.png", "file/x.png", "folder.png", "/proc/x.png", ""):
        target = place if place.startswith("/") or not place else str(tmp_path / place)
        if words[-1] == "--report" and place == "folder.png":
            target = str(tmp_path / "file")
        assert command(*words, target) in (1, 2), target
        said = capsys.readouterr()
        assert not target or target in said.err or "expected the folder" in said.err
        assert "written" not in said.out
    assert time.perf_counter() - began < 15
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.png", "results.jsonl"]


@pytest.mark.parametrize("words", [words for words in WRITERS if words[-1] == "--plot"], ids=" ".join)
def test_a_plot_of_an_unknown_format_is_refused_before_the_work(words, tmp_path, capsys):
    assert command(*words, tmp_path / "plot.xyz") == 1
    assert "expected a name that ends in .png, .svg, .pdf" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["train"], ["compare"], ["transfer", "train"], ["reproduce", "list", "--results"]], ids=" ".join
)
def test_an_empty_folder_name_is_refused(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command(*words, *([] if words[-1].startswith("--") else ["--out"]), "") == 2
    assert "expected a path, got an empty text" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# --- damaged lines, and configurations that take long to read


def test_a_warning_of_a_damaged_line_is_one_line_and_appears_once(tmp_path):
    out = tmp_path / "compared"
    out.mkdir()
    (out / "results.jsonl").write_text('{"config": 3}\n' + GOOD.to_json() + "\n", "utf-8")
    code = "import sys; from spectralgrad.cli import main; sys.exit(main(sys.argv[1:]))"
    flags = [*SMALL[1:], "--methods", "batchnorm", "--seeds", "1", "--jobs", "1", "--out", out]
    for arguments in (["report", out], ["compare", *flags]):
        done = forked.run("-c", code, *arguments, timeout=120)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("is damaged and skipped") == 1
        assert done.stderr.startswith("UserWarning: ")
        assert "warnings.warn" not in done.stderr


@pytest.mark.parametrize(
    "text",
    {
        "a long list": "milestones = [" + "1," * 25_000_000 + "]",
        "a list": "milestones = [" + "1," * 30_000 + "]",
        "a key of many parts": "a" + ".a" * 30_000 + " = 1",
        "a table of many parts": "[a" + ".a" * 30_000 + "]",
        "an inline table": "a = {" + "a" + ".a" * 30_000 + " = 1}",
        "a key of many quoted parts": "a" + '."\u2028"' * 8_000 + " = 1",
        "deep lists": "a = " + "[" * 30_000,
        "deep tables": "a = " + "{a = " * 10_000,
    }.items(),
    ids=lambda item: item[0],
)
def test_no_configuration_takes_long_to_read(text, tmp_path):
    (tmp_path / "config.toml").write_text(text[1], "utf-8")
    began = time.perf_counter()
    with pytest.raises(ConfigError, match=r"config\.toml: "):
        Config.from_toml(tmp_path / "config.toml")
    assert time.perf_counter() - began < 5  # 17 to 25 s without limits


def test_every_configuration_of_ours_is_read(tmp_path):
    config = Config(dataset="folder", data="/a.b.c/" + "d.e/" * 200, milestones=tuple(range(1, 400)), epochs=400)
    (tmp_path / "config.toml").write_text(config.to_toml(), "utf-8")
    assert Config.from_toml(tmp_path / "config.toml") == config


def test_a_run_of_a_user_may_still_use_more_threads_than_one(tmp_path):
    assert train(Config(train_size=64, test_size=64, epochs=1, width=2, threads=2, tensorboard=False)).status == "done"
