"""Datasets of image files: found, decoded when asked for, refused with a reason."""

from pathlib import Path

import numpy as np
import pytest
import torch

from spectralgrad.errors import SpectralError
from spectralgrad_lab.data import AUGMENTATIONS, Augmentation, Batches, DataError, ImageFiles, load
from spectralgrad_lab.data import image_files as image_module

pil = pytest.importorskip("PIL.Image")


def image(path: Path, pixels: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pil.fromarray(pixels).save(path)
    return path


@pytest.fixture
def folders(tmp_path):
    """Two classes, three training and one test image each, wider than high."""
    generator = np.random.default_rng(0)
    for part, count in (("train", 3), ("val", 1)):
        for kind in ("cat", "dog"):
            for i in range(count):
                image(tmp_path / part / kind / f"{i}.png", generator.integers(0, 256, (256, 300, 3), dtype=np.uint8))
    return tmp_path


def pixels_of(path: Path) -> torch.Tensor:
    return torch.from_numpy(np.array(pil.open(path).convert("RGB"))).permute(2, 0, 1)


def test_folders_are_read_lazily_and_cut_in_the_middle(folders):
    (folders / "train" / "cat" / "notes.txt").touch()
    (folders / "train" / ".cache").mkdir()
    data = load("folder", folders)
    assert data.classes == ("cat", "dog")
    assert data.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert (data.image_size, data.augmentation) == (224, "imagenet")
    raw = pixels_of(folders / "val" / "dog" / "0.png")
    assert torch.equal(data.test.images.read(1), raw[:, 16:240, 38:262])
    assert torch.equal(data.test.images.read(1, place=(0, 0)), raw[:, :224, :224])
    assert torch.equal(data.test.images.read(1, place=(1, 1)), raw[:, -224:, -224:])
    assert len(load("folder", folders, train_size=4).train.images) == 4


def test_images_are_resized_by_their_shorter_side(tmp_path):
    image(tmp_path / "grey.png", np.full((100, 50), 77, dtype=np.uint8))
    files = ImageFiles(tmp_path, ["grey.png"], resize=32, crop=24)
    assert files.read(0).shape == (3, 24, 24)
    assert files.read(0).unique().tolist() == [77]
    tall = Augmentation(resize=40, crop=40)
    assert files.batch(torch.tensor([0]), torch.zeros(1, 4), tall).shape == (1, 3, 40, 40)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_files(folders, workers):
    data = load("folder", folders)
    same = {"mean": data.mean, "std": data.std, "workers": workers}
    train = Batches(data.train, 4, augmentation="imagenet", drop_last=False, **same)
    sizes = [(tuple(x.shape), len(y)) for x, y in train.epoch(0)]
    assert sizes == [((4, 3, 224, 224), 4), ((2, 3, 224, 224), 2)]
    assert train.shape == (3, 224, 224)
    ((x, _),) = Batches(data.test, 2, shuffle=False, **same).epoch(0)
    want = (data.test.images.read(0) / 255 - torch.tensor(data.mean).view(3, 1, 1)) / torch.tensor(data.std).view(
        3, 1, 1
    )
    assert torch.allclose(x[0], want, atol=1e-5)


def test_files_are_cut_from_anywhere_and_flipped(folders):
    data = load("folder", folders)
    raw = pixels_of(folders / "train" / "cat" / "0.png")
    draws = torch.tensor([[0.5, 0.25, 0.2, 0.0], [0.0, 0.999, 0.7, 0.0]])
    images = data.train.images.batch(torch.tensor([0, 0]), draws, AUGMENTATIONS["imagenet"])
    assert torch.equal(images[0], raw[:, 16:240, 19:243].flip(2))
    assert torch.equal(images[1], raw[:, :224, 76:])
    large = data.train.images.batch(torch.tensor([0]), draws[:1], AUGMENTATIONS["fine-grained"])
    assert large.shape == (1, 3, 448, 448)


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("damage", ["truncated", "no image", "missing"])
def test_a_damaged_image_is_named(folders, workers, damage):
    data = load("folder", folders)
    path = folders / "train" / "dog" / "1.png"
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:50_000] if damage == "truncated" else b"hello")
    batches = Batches(data.train, 2, augmentation="imagenet", mean=data.mean, std=data.std, workers=workers)
    with pytest.raises(DataError, match=r"dog.1\.png: (cannot be decoded|no such file)"):
        list(batches.epoch(0))


def test_folders_that_are_not_what_is_wanted_are_refused(folders):
    (folders / "val" / "cow").mkdir()
    with pytest.raises(DataError, match="val: contains a class without training images: cow"):
        load("imagenet", folders)
    (folders / "val" / "cow").rmdir()
    (folders / "train" / "emu").mkdir()
    with pytest.raises(DataError, match="emu: contains no image"):
        load("cars", folders)
    (folders / "train" / "emu").rmdir()
    (folders / "val").rename(folders / "held-out")
    with pytest.raises(DataError, match=r"contains no val or test.*Expected: train/CLASS/IMAGE"):
        load("dogs", folders)


@pytest.mark.parametrize("name", ["../secret.png", "/etc/image.png", "a/../../b.png"])
def test_names_that_lead_out_of_the_folder_are_refused(tmp_path, name):
    with pytest.raises(DataError, match="a path leads out of the folder"):
        ImageFiles(tmp_path, [name], resize=8, crop=8)


def test_without_pillow_the_error_names_it(folders, monkeypatch):
    monkeypatch.setattr(image_module, "find_spec", lambda _: None)
    with pytest.raises(SpectralError, match="pip install pillow"):
        load("folder", folders)


@pytest.fixture
def tiny(tmp_path):
    root = tmp_path / "tiny-imagenet-200"
    for i, wnid in enumerate(("n02", "n01")):
        for k in range(2):
            pixels = np.full((64, 64, 3), 10 * i + k, dtype=np.uint8)
            image(root / "train" / wnid / "images" / f"{wnid}_{k}.JPEG", pixels)
        image(root / "val" / "images" / f"val_{i}.JPEG", np.full((64, 64, 3), 10 * i, dtype=np.uint8))
    (root / "wnids.txt").write_text("n02\nn01\n")
    (root / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn02\t0\t0\t62\t62\nval_1.JPEG\tn01\t1\t1\t9\t9\n")
    return root


def test_tiny_imagenet(tiny):
    data = load("tiny-imagenet", tiny.parent)
    assert data.classes == ("n02", "n01")
    assert data.train.labels.tolist() == [0, 0, 1, 1]
    assert data.test.labels.tolist() == [0, 1]
    assert data.test.images.read(1).float().mean().item() == pytest.approx(10, abs=1)
    assert (data.image_size, data.augmentation) == (64, "rotate-flip")
    batch, _ = next(Batches(data.train, 4, augmentation="rotate-flip", mean=data.mean, std=data.std).epoch(0))
    assert batch.shape == (4, 3, 64, 64)
    annotations = tiny / "val" / "val_annotations.txt"
    for content, message in {
        "val_0.JPEG\tn99\n": "val_annotations.txt: unknown class 'n99'",
        "val_0.JPEG\n": "val_annotations.txt: expected 2 columns in row 1, got 1",
        "../../x.JPEG\tn01\n": "a path leads out of the folder",
        "": "val_annotations.txt: empty file",
    }.items():
        annotations.write_text(content)
        with pytest.raises(DataError, match=message):
            load("tiny-imagenet", tiny)
    annotations.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="not a text file"):
        load("tiny-imagenet", tiny)


def test_birds_are_read_from_their_lists(tmp_path):
    root = tmp_path / "CUB_200_2011"
    for name in ("001.Wren/a.jpg", "002.Crow/b.jpg", "002.Crow/c.jpg"):
        image(root / "images" / name, np.zeros((10, 12, 3), dtype=np.uint8))
    tables = {
        "images.txt": "1 001.Wren/a.jpg\n2 002.Crow/b.jpg\n3 002.Crow/c.jpg\n",
        "classes.txt": "1 001.Wren\n2 002.Crow\n",
        "image_class_labels.txt": "1 1\n2 2\n3 2\n",
        "train_test_split.txt": "1 1\n2 0\n3 1\n",
    }
    for name, content in tables.items():
        (root / name).write_text(content)
    data = load("birds", tmp_path)
    assert data.classes == ("001.Wren", "002.Crow")
    assert data.train.images.names == ("001.Wren/a.jpg", "002.Crow/c.jpg")
    assert data.train.labels.tolist() == [0, 1]
    assert data.test.labels.tolist() == [1]
    assert data.image_size == 448
    (root / "image_class_labels.txt").write_text("1 1\n2 2\n")
    with pytest.raises(DataError, match=r"image_class_labels.txt: expected a known value for image 3, got None"):
        load("birds", root)


def test_birds_may_be_in_class_folders(folders):
    data = load("birds", folders)
    assert (data.name, data.image_size, len(data.train)) == ("birds", 448, 6)


def test_empty_parts_of_files(folders):
    data = load("folder", folders)
    made = Batches(data.train, 5, augmentation="imagenet", mean=data.mean, std=data.std, drop_last=False, world=4)
    assert [len(x) for x, _ in made.epoch(0)] == [1, 0]
