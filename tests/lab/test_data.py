"""The data of the lab: files are read right, or refused with a reason that says which, what and where to get it."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from spectralgrad_lab.data import DATASETS, DataError, load
from spectralgrad_lab.data.embedded import FOLDER


def test_embedded_images_are_balanced_small_and_licensed():
    data = load("fashion")
    assert data.train.images.shape == (4000, 1, 28, 28)
    assert data.test.images.shape == (1000, 1, 28, 28)
    assert data.train.labels.bincount().tolist() == [400] * 10
    assert data.test.labels.bincount().tolist() == [100] * 10
    pixels = data.train.images.double() / 255
    assert pixels.mean().item() == pytest.approx(data.mean[0], abs=2e-3)
    assert pixels.std().item() == pytest.approx(data.std[0], abs=2e-3)
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 2.3e6
    assert "Permission is hereby granted" in (FOLDER / "LICENSE").read_text("utf-8")


def test_a_part_of_the_training_images_is_balanced_and_grows():
    whole, small, large = (load("fashion", train_size=n).train for n in (None, 25, 100))
    assert sorted(small.labels.bincount().tolist()) == [2] * 5 + [3] * 5
    assert len(load("fashion", train_size=25).test) == 1000
    rows = {bytes(image.numpy().tobytes()) for image in large.images}
    assert all(image.numpy().tobytes() in rows for image in small.images)
    assert torch.equal(whole.first(4000).images, whole.images)


@pytest.mark.parametrize("size", [0, -1, 4001])
def test_a_part_larger_than_the_whole_is_refused(size):
    with pytest.raises(DataError, match=f"train_size or test_size from 1 to 4000, got {size}"):
        load("fashion", train_size=size)


def test_every_dataset_has_a_line_and_says_where_to_get_it():
    assert {"fashion", "cifar10", "cifar100", "tiny-imagenet", "folder", "birds", "dogs", "cars"} < set(DATASETS)
    for name, source in DATASETS.items():
        assert 0 < len(str(source)) < 100
        if name != "fashion":
            with pytest.raises(DataError, match=f"{name}: expected the folder of its files .--data DIR., got none. .+"):
                load(name)
            with pytest.raises(DataError, match="no such folder"):
                load(name, "nowhere")
    with pytest.raises(DataError, match=r"expected a dataset of fashion, .*got 'mnist'"):
        load("mnist")


# IDX files


def idx(values: np.ndarray) -> bytes:
    return bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


@pytest.fixture
def fashion(tmp_path):
    """A folder of four files with three images of 28 × 28 each, of which the last image file is compressed."""
    generator = np.random.default_rng(0)
    for part in ("train", "t10k"):
        images = generator.integers(0, 256, (3, 28, 28), dtype=np.uint8)
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(idx(images))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(idx(np.array([7, 0, 9], dtype=np.uint8)))
    packed = tmp_path / "t10k-images-idx3-ubyte"
    (tmp_path / f"{packed.name}.gz").write_bytes(gzip.compress(packed.read_bytes()))
    packed.unlink()
    return tmp_path


def test_idx_files_are_read_compressed_or_not(fashion):
    data = load("fashion-mnist", fashion)
    raw = (fashion / "train-images-idx3-ubyte").read_bytes()
    assert data.train.images.numpy().tobytes() == raw[16:]
    assert data.train.labels.tolist() == [7, 0, 9]
    assert data.test.images.shape == (3, 1, 28, 28)
    (inner := fashion / "FashionMNIST" / "raw").mkdir(parents=True)
    for file in fashion.glob("*ubyte*"):
        file.rename(inner / file.name)
    assert torch.equal(load("fashion-mnist", fashion).test.images, data.test.images)


def cut(content: bytes) -> bytes:
    return content[:-5]


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("train-images-idx3-ubyte", cut, "expected 2352 bytes after the header, got 2347"),
        ("train-images-idx3-ubyte", lambda c: c + b"x", "expected 2352 bytes after the header, got more"),
        ("train-images-idx3-ubyte", lambda _: b"", "header for bytes in 3 dimensions, got nothing"),
        ("train-images-idx3-ubyte", lambda c: b"PK" + c, "header for bytes in 3 dimensions, got 50 4b 00 00"),
        ("train-images-idx3-ubyte", lambda c: c[:4] + b"\xff" * 4 + c[8:], "the header claims 4294967295 × 28 × 28"),
        ("t10k-images-idx3-ubyte.gz", cut, "damaged gzip file"),
        ("t10k-images-idx3-ubyte.gz", lambda c: c[:40] + b"\0\0\0\0" + c[44:], "damaged gzip file"),
        ("t10k-images-idx3-ubyte.gz", lambda _: b"<html>", "damaged gzip file"),
        ("train-labels-idx1-ubyte", lambda c: c[:-1] + b"\x0a", "labels from 0 to 9, got 10 in record 2"),
        ("train-labels-idx1-ubyte", lambda _: idx(np.zeros(2, np.uint8)), "expected 3 labels, one per image, got 2"),
        ("t10k-labels-idx1-ubyte", None, "no such file"),
    ],
)
def test_damaged_idx_files_are_refused(fashion, file, change, message):
    path = fashion / file
    path.write_bytes(change(path.read_bytes())) if change else path.unlink()
    with pytest.raises(DataError, match=message) as caught:
        load("fashion-mnist", fashion)
    assert caught.value.path.name.startswith(file)
    assert "github.com/zalandoresearch/fashion-mnist" in str(caught.value)


# CIFAR


def cifar(folder: Path, files: dict[str, int], label_bytes: int, names: str, classes: int) -> Path:
    """Files of the right size in which classes take turns, black but for the first record of the first one."""
    folder.mkdir(parents=True)
    for name, records in files.items():
        content = np.memmap(folder / name, np.uint8, "w+", shape=(records, label_bytes + 3072))
        content[:, label_bytes - 1] = (np.arange(records) + 2 + label_bytes) % classes
    with (folder / next(iter(files))).open("r+b") as file:
        file.write(bytes(range(3, 3 + label_bytes)) + bytes(i % 251 for i in range(3072)))
    (folder / names).write_text("".join(f"class{i}\n" for i in range(classes)))
    return folder


@pytest.fixture
def cifar10(tmp_path):
    files = {f"data_batch_{i}.bin": 10_000 for i in range(1, 6)} | {"test_batch.bin": 10_000}
    return cifar(tmp_path / "cifar-10-batches-bin", files, 1, "batches.meta.txt", 10)


def first_record() -> torch.Tensor:
    return torch.tensor([i % 251 for i in range(3072)], dtype=torch.uint8).view(3, 32, 32)


def test_cifar10_is_read_from_its_binary_files(cifar10):
    data = load("cifar10", cifar10.parent, train_size=5)
    assert data.test.images.shape == (10_000, 3, 32, 32)
    assert data.train.labels.tolist() == [3, 4, 5, 6, 7]
    assert torch.equal(data.train.images[0], first_record())
    assert len(load("cifar10", cifar10, test_size=20).test) == 20
    assert data.classes[3] == "class3"
    assert (data.augmentation, data.image_size, data.channels) == ("crop-flip", 32, 3)


def test_cifar100_takes_the_fine_label(tmp_path):
    folder = cifar(
        tmp_path / "cifar-100-binary", {"train.bin": 50_000, "test.bin": 10_000}, 2, "fine_label_names.txt", 100
    )
    data = load("cifar100", folder)
    assert data.train.labels[0] == 4
    assert torch.equal(data.train.images[0], first_record())
    assert len(data.train) == 50_000


def test_cifar_files_that_are_not_what_their_names_say_are_refused(cifar10):
    with (cifar10 / "data_batch_3.bin").open("wb") as file:
        file.truncate(10_000 * 3073)
    with pytest.raises(DataError, match="expected 5000 images per class, got 14000 of class 0") as caught:
        load("cifar10", cifar10)
    assert "data_batch_3.bin" in str(caught.value)


def test_a_folder_for_the_embedded_images_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"fashion is in the package: expected no folder.*--dataset"):
        load("fashion", tmp_path)


def test_damaged_cifar_files_are_refused(cifar10):
    def refusal() -> str:
        with pytest.raises(DataError) as caught:
            load("cifar10", cifar10)
        assert "cs.toronto.edu" in str(caught.value)
        return str(caught.value)

    with (cifar10 / "test_batch.bin").open("r+b") as file:
        file.seek(77 * 3073)
        file.write(b"\x63")
    assert "test_batch.bin: expected labels from 0 to 9, got 99 in record 77" in refusal()
    (cifar10 / "batches.meta.txt").write_text("cat\n")
    assert "batches.meta.txt: expected 10 names of classes, got 1" in refusal()
    with (cifar10 / "data_batch_4.bin").open("r+b") as file:
        file.truncate(3073 * 9_000)
    assert "data_batch_4.bin: expected 30730000 bytes (10000 records), got 27657000" in refusal()
    (cifar10 / "data_batch_2.bin").unlink()
    assert "data_batch_2.bin: no such file" in refusal()


def test_other_forms_of_cifar_are_recognized(tmp_path):
    (tmp_path / "cifar-10-binary.tar.gz").touch()
    with pytest.raises(DataError, match=r"cifar-10-binary.tar.gz has not been unpacked: run tar xf"):
        load("cifar10", tmp_path)
    (pickles := tmp_path / "cifar-10-batches-py").mkdir()
    (pickles / "data_batch_1").touch()
    for folder in (tmp_path, pickles):
        with pytest.raises(DataError, match="contains the Python version, which is pickled and not supported"):
            load("cifar10", folder)
