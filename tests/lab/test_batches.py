"""Augmentation does what a loop would do, and batches depend on seed and epoch only."""

import threading

import numpy as np
import pytest
import torch

from spectralgrad_lab.data import AUGMENTATIONS, Augmentation, Batches, DataError, Split
from spectralgrad_lab.data.augmentation import augmented

# Augmentation


def noise(*shape: int) -> torch.Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("padding", [0, 4])
@pytest.mark.parametrize("crop", [None, 7])
@pytest.mark.parametrize("flip", [False, True])
def test_random_crops_are_those_of_a_loop(padding, crop, flip):
    images, draws = noise(40, 3, 8, 11), torch.rand(40, 4, generator=torch.Generator().manual_seed(2))
    out = augmented(images, draws, Augmentation(padding=padding, crop=crop, centered=False, flip=flip))
    height, width = crop or 8, crop or 11
    seen = set()
    for image_, (y, x, f, _), got in zip(images.numpy(), draws.tolist(), out, strict=True):
        padded = np.pad(image_, ((0, 0), (padding, padding), (padding, padding)))
        top, left = int(y * (padded.shape[1] - height + 1)), int(x * (padded.shape[2] - width + 1))
        seen.add((top, left))
        window = padded[:, top : top + height, left : left + width]
        assert np.array_equal(got.numpy(), window[:, :, ::-1] if flip and f < 0.5 else window)
    assert len(seen) > 3 or (padding == 0 and crop is None)


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_a_draw_near_one_stays_inside(name):
    almost = torch.full((2, 4), 1 - 2**-24)
    size = {"imagenet": 224, "fine-grained": 448}.get(name, 32)
    assert augmented(noise(2, 3, 32, 32), almost, AUGMENTATIONS[name]).shape == (2, 3, size, size)


@pytest.mark.parametrize("shape", [(9, 9), (8, 8), (7, 7)])
def test_a_quarter_turn_is_exact(shape):
    images = noise(3, 2, *shape)
    quarter = Augmentation(degrees=90)
    ones, zeros = torch.ones(3, 4), torch.zeros(3, 4)
    turns = [augmented(images, draws, quarter) for draws in (ones, zeros)]
    assert {torch.equal(turns[0], images.rot90(k, (2, 3))) for k in (1, 3)} == {True, False}
    assert torch.equal(turns[0].rot90(2, (2, 3)), turns[1])
    assert torch.equal(augmented(images, ones / 2, quarter), images)


def test_turning_keeps_pixels_square():
    """A half turn of an image that is not square, and a quarter turn of the square in its middle."""
    images = noise(1, 1, 9, 21)
    assert torch.equal(augmented(images, torch.ones(1, 4), Augmentation(degrees=180)), images.flip(2, 3))
    quarter = augmented(images, torch.ones(1, 4), Augmentation(degrees=90))
    middle = images[..., 6:15].rot90(1, (2, 3)), images[..., 6:15].rot90(3, (2, 3))
    assert any(torch.equal(quarter[..., 6:15], square) for square in middle)
    assert not quarter[..., :6].any()  # black: beyond the image's upper and lower edge


def test_the_counterpart_for_evaluation_has_the_same_size_and_no_chance():
    images = noise(4, 3, 40, 40)
    for how in AUGMENTATIONS.values():
        first, second = (augmented(images, torch.full((4, 4), value), how.evaluation) for value in (0.0, 0.9))
        assert torch.equal(first, second)
        assert first.shape == augmented(images, torch.rand(4, 4), how).shape


def test_what_cannot_be_cut_or_is_unknown_is_refused():
    for centered in (True, False):
        with pytest.raises(DataError, match="cannot crop 9 × 9 from images of 8 × 8"):
            augmented(noise(1, 1, 8, 8), torch.zeros(1, 4), Augmentation(crop=9, centered=centered))
    with pytest.raises(DataError, match=r"augmentation of none, crop-flip, .*got 'mixup'"):
        Batches(Split(noise(4, 1, 8, 8), torch.zeros(4).long()), 2, augmentation="mixup", mean=(0,), std=(1,))


# Batches


def counted(n: int = 23, size: int = 8) -> Split:
    """Every pixel of image i is i, and so is its label."""
    return Split(torch.arange(n, dtype=torch.uint8).view(n, 1, 1, 1).repeat(1, 1, size, size), torch.arange(n))


def batches(split: Split | None = None, size: int = 8, **options) -> Batches:
    return Batches(split or counted(), size, **{"mean": (0.0,), "std": (1 / 255,), "drop_last": False, **options})


def contents(made: Batches, epoch: int = 0, start: int = 0) -> list[list[int]]:
    return [labels.tolist() for _, labels in made.epoch(epoch, start)]


def flat(lists: list[list[int]]) -> list[int]:
    return [value for values in lists for value in values]


def test_every_image_comes_once_with_its_label():
    for images, labels in batches().epoch(0):
        assert torch.equal(images[:, 0, 0, 0], labels.float())
    order = flat(contents(batches()))
    assert sorted(order) == list(range(23))
    assert order != list(range(23))
    assert flat(contents(batches(shuffle=False))) == list(range(23))


def test_pixels_are_normalized():
    split = Split(torch.tensor([0, 255], dtype=torch.uint8).view(1, 2, 1, 1), torch.tensor([0]))
    ((images, _),) = batches(split, 1, mean=(0.5, 0.25), std=(0.5, 0.25)).epoch(0)
    assert images.flatten().tolist() == pytest.approx([-1, 3])
    assert images.dtype == torch.float32


def all_of(made: Batches, epoch: int = 0, start: int = 0) -> torch.Tensor:
    return torch.cat([images for images, _ in made.epoch(epoch, start)])


@pytest.mark.parametrize("augmentation", ["none", "crop-flip", "rotate-flip"])
def test_an_epoch_is_a_function_of_seed_and_number(augmentation):
    split = Split(noise(23, 1, 8, 8), torch.arange(23))
    made = batches(split, augmentation=augmentation, seed=5)
    first = all_of(made, 3)
    torch.manual_seed(99)
    state = torch.get_rng_state()
    assert torch.equal(all_of(made, 3), first)
    assert torch.equal(all_of(batches(split, augmentation=augmentation, seed=5, workers=3), 3), first)
    assert torch.equal(all_of(batches(split, size=5, augmentation=augmentation, seed=5), 3), first)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(all_of(made, 4), first)
    assert not torch.equal(all_of(batches(split, augmentation=augmentation, seed=6), 3), first)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_can_be_continued(workers):
    made = batches(augmentation="crop-flip", workers=workers)
    whole = list(made.epoch(2))
    rest = list(made.epoch(2, start=1))
    assert len(rest) == len(whole) - 1 == len(made) - 1
    assert all(torch.equal(a[0], b[0]) for a, b in zip(whole[1:], rest, strict=True))
    assert list(made.epoch(2, start=len(made))) == []


@pytest.mark.parametrize("world", [1, 2, 3, 8])
@pytest.mark.parametrize("drop_last", [False, True])
def test_the_parts_of_all_processes_are_the_whole_batch(world, drop_last):
    options = {"augmentation": "crop-flip", "drop_last": drop_last}
    whole = list(batches(**options).epoch(1))
    parts = [list(batches(**options, rank=r, world=world).epoch(1)) for r in range(world)]
    assert {len(part) for part in parts} == {len(whole)} == {2 if drop_last else 3}
    for step, (images, labels) in enumerate(whole):
        shares = [part[step] for part in parts]
        assert torch.equal(torch.cat([share[0] for share in shares]), images)
        assert torch.equal(torch.cat([share[1] for share in shares]), labels)
        sizes = [len(share[1]) for share in shares]
        assert max(sizes) - min(sizes) <= 1


def test_a_part_may_be_empty():
    sizes = [contents(batches(counted(9), rank=r, world=8)) for r in range(8)]
    assert sorted(len(share[1]) for share in sizes) == [0] * 7 + [1]
    images, labels = list(batches(counted(9), augmentation="crop-flip", rank=0, world=8).epoch(0))[1]
    assert (images.shape, labels.shape) == ((0, 1, 8, 8), (0,))


def test_threads_end_with_the_iteration():
    made = batches(size=1, workers=4)
    iterator = made.epoch(0)
    next(iterator)
    assert any(thread.name.startswith("batches") for thread in threading.enumerate())
    iterator.close()
    assert not any(thread.name.startswith("batches") for thread in threading.enumerate())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "batch_size ≥ 1"),
        ({"workers": -1}, "workers ≥ 0"),
        ({"seed": -1}, "seed ≥ 0"),
        ({"rank": 2, "world": 2}, "0 ≤ rank < world, got rank 2 of 2"),
        ({"size": 2, "world": 3}, "at least one image per process, got batch_size 2 for 3"),
        ({"size": 24, "drop_last": True}, "23 images are too few for a batch of 24; pass a smaller"),
        ({"mean": (0, 0, 0)}, "a mean and a positive std per channel, got 3 and 1 for 1 channels"),
        ({"std": (0,)}, "a mean and a positive std per channel"),
    ],
)
def test_batches_that_make_no_sense_are_refused(options, message):
    with pytest.raises(DataError, match=message):
        batches(**options)


@pytest.mark.parametrize(("epoch", "start"), [(-1, 0), (0, 4), (0, -1)])
def test_epochs_that_make_no_sense_are_refused(epoch, start):
    with pytest.raises(DataError, match="epoch ≥ 0 and start from 0 to 3"):
        batches().epoch(epoch, start)


def test_a_split_has_one_label_per_image():
    with pytest.raises(DataError, match="expected one label per image, got 3 and 2"):
        Split(noise(3, 1, 4, 4), torch.zeros(2).long())
