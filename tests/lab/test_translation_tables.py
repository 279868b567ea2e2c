"""Tables 8 to 10 of TPAMI 2021 as items: networks trained once, finished runs taken, pictures held out."""

import json
import math
import shutil

import pytest
from PIL import Image

from spectralgrad_lab.comparison.jobs import JobError, JobStoppedError, worker_errors
from spectralgrad_lab.data.errors import DataError
from spectralgrad_lab.papers.items import ItemError, select
from spectralgrad_lab.papers.run_item import run
from spectralgrad_lab.papers.tpami import translated_pictures, translation_times
from spectralgrad_lab.papers.training import Setup
from spectralgrad_lab.papers.verdicts import TOO_SMALL
from spectralgrad_lab.training.processes.interrupts import Stopped
from spectralgrad_lab.transfer.pictures.random_crops import RandomCrops
from spectralgrad_lab.transfer.style_classifier import StyleClassifier
from spectralgrad_lab.transfer.translation import TranslationConfig, train_translation
from spectralgrad_lab.transfer.translation.task import TranslationTask

from .translation_runs import pictures

TINY = {
    "size": 32, "resize": 36, "scales": 1, "width": 2, "group_size": 4, "batch_size": 1, "steps": 2, "threads": 1,
    "tensorboard": False, "log_every": 1,
}  # fmt: skip
TABLE_8, TABLE_9 = (select([f"tpami/training-table-{number}"])[0] for number in (8, 9))


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(translated_pictures, "SETTINGS", TINY)
    monkeypatch.setattr(translated_pictures, "CLASSIFIER", {"crops": 16, "epochs": 1, "width": 2})
    monkeypatch.setattr(translated_pictures, "JUDGED", 4)


@pytest.fixture
def data(tmp_path):
    """A folder with the domains' folders."""
    folder = tmp_path / "images"
    folder.mkdir()
    for old, new in zip(pictures(folder).values(), ("photos", "paintings"), strict=True):
        shutil.move(old, folder / new)
    return folder


def outcome(item, results, data=None):
    return run(item, Setup(results, data, 1, lambda line: None))


@pytest.mark.usefixtures("small")
class TestRuns:
    def test_trained_once_and_shared_by_both_tables(self, tmp_path, data):
        accuracies = outcome(TABLE_8, tmp_path, data)
        assert accuracies.verdict == TOO_SMALL
        assert accuracies.values["methods"] == ["GD-WCT", "SVD-WCT", "exact"]
        assert all(0 <= share <= 100 for share in accuracies.values["to_paintings"])
        assert accuracies.values["to_paintings_published"] == [36.88, 74.17, pytest.approx(math.nan, nan_ok=True)]
        assert accuracies.values["real_published"] == [92.14, 100.0]
        assert accuracies.values["held_out"] == [1, 1]
        folder = tmp_path / "tpami" / "training-table-8"
        assert sorted(path.name for path in (folder / "runs").iterdir()) == ["exact", "gd", "svd-taylor"]
        stored = (folder / "results.jsonl").read_text("utf-8")
        assert str(tmp_path) not in stored
        assert [json.loads(line)["result"]["steps"] for line in stored.splitlines()] == [2, 2, 2]
        again, sharp = outcome(TABLE_8, tmp_path), outcome(TABLE_9, tmp_path)  # without data, so without training
        assert str(again.values) == str(accuracies.values)
        assert all(value > 0 for value in sharp.values["to_paintings"] + sharp.values["real"])

    def test_a_finished_run_is_taken_wherever_its_pictures_were(self, tmp_path, data, monkeypatch):
        moved = tmp_path / "moved"
        shutil.copytree(data, moved)
        for method, config in translated_pictures.METHODS.items():
            folder = translated_pictures.folder_of(tmp_path / "tpami" / "training-table-8" / "runs", method)
            train_translation(
                config.replaced(**TINY, a=str(moved / "photos"), b=str(moved / "paintings"), sample_every=1), folder
            )
        shutil.rmtree(moved)
        monkeypatch.setattr(TranslationTask, "step", None)
        assert outcome(TABLE_8, tmp_path, data).values["failures"] == "none"

    def test_a_run_with_other_settings_is_refused(self, tmp_path, data):
        config = TranslationConfig(**{**TINY, "lr": 1e-3}, a=str(data / "photos"), b=str(data / "paintings"))
        train_translation(config, tmp_path / "exact")
        with pytest.raises(ValueError, match="lr was"):
            translated_pictures.learn(str(tmp_path), {"method": "exact", "seed": 0, "data": str(data)})

    def test_a_run_that_diverges_is_recorded(self, tmp_path, data, monkeypatch):
        monkeypatch.setitem(TINY, "lr", 1e30)
        found = translated_pictures.learn(str(tmp_path), {"method": "exact", "seed": 0, "data": str(data)})
        assert "finite" in found["failure"]
        assert found["translated"] == {"photos": None, "paintings": None}
        assert set(found["real"]) == {"photos", "paintings"}

    def test_missing_folders(self, tmp_path):
        with pytest.raises(ItemError, match=r"3 of 3 runs left, which need photographs and paintings: --data DIR"):
            outcome(TABLE_9, tmp_path)
        with pytest.raises(DataError, match="photos"):
            outcome(TABLE_8, tmp_path, tmp_path)


def test_tables_have_the_names_of_the_paper():
    names = {item.key for item in select(["tpami/table-8", "tpami/table-9", "tpami/table-10"])}
    assert names == {
        f"tpami/{name}"
        for name in ("R41", "R42", "R43", "R45", "training-table-8", "training-table-9", "table-10-times")
    }


class TestHeldOut:
    def test_the_halves_have_no_picture_in_common(self, data):
        learned, held_out = (
            {
                file
                for name in ("photos", "paintings")
                for file in RandomCrops(data / name, size=32, resize=36, images=part).files
            }
            for part in (translated_pictures.LEARNED, translated_pictures.HELD_OUT)
        )
        assert learned & held_out == set()
        assert len(learned | held_out) == 6

    def test_no_picture_is_left(self, data):
        with pytest.raises(DataError, match="too few images"):
            RandomCrops(data / "photos", size=32, resize=36, images=slice(3, None))

    def test_the_classifier_learns_from_one_half_and_is_tested_on_the_other(self, tmp_path):
        """Dark and bright are exchanged in the second half, so what it learns there is wrong here."""
        folders = {name: tmp_path / name for name in ("dark", "bright")}
        for name, folder in folders.items():
            folder.mkdir()
            for i in range(4):
                level = 60 if (name == "dark") == (i % 2 == 0) else 190
                Image.new("RGB", (40, 40), (level + i, level, level)).save(folder / f"{i}.png")
        options = {"size": 32, "crops": 64, "tested": 16, "epochs": 3, "width": 4}
        same = StyleClassifier.trained_on(folders, **options, images=translated_pictures.LEARNED)
        other = StyleClassifier.trained_on(
            folders, **options, images=translated_pictures.LEARNED, test_images=translated_pictures.HELD_OUT
        )
        assert (same.held_out, other.held_out) == (100, 0)


class TestWorkers:
    """Errors cross the border of a process as plain text."""

    def test_a_stopped_run(self):
        with pytest.raises(JobStoppedError, match="method exact: stopped by SIGTERM"), worker_errors("method exact"):
            raise Stopped(15)

    @pytest.mark.runs
    def test_missing_data(self, tmp_path):
        setup = Setup(tmp_path, tmp_path, 2, lambda line: None)
        with pytest.raises(JobError, match=r"method [a-zA-Z-]+, seed 0: .*photos"):
            run(TABLE_8, setup)


def test_times(monkeypatch):
    found = translation_times.reference_times
    monkeypatch.setattr(
        translation_times, "reference_times", lambda methods, rounds: found(methods, width=2, size=32, rounds=1)
    )
    monkeypatch.setattr(translation_times, "CHANNELS", 16)
    monkeypatch.setattr(translation_times, "SIDE", 6)
    values = translation_times.times()
    assert values["printed"][:4] == [53, 122, 184, 122]
    assert all(ms > 0 for ms in values["picture"] + values["whitening"])
