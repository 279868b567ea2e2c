"""The tool that builds the wheels of a release: tags, records, versions, and what its checks object to."""

import base64
import csv
import hashlib
import io
import shutil
import zipfile

import pytest

import spectralgrad as sg
from spectralgrad.native import build
from tests.documents import ROOT
from tools.wheels import archive, checks, release
from tools.wheels.kernels import PLATFORMS, this_machine

PLAIN = {
    "spectralgrad/__init__.py": b"",
    "spectralgrad-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "spectralgrad-1.0.dist-info/RECORD": b"",
}


@pytest.fixture
def wheel(tmp_path):
    """A wheel without kernel, and a file that stands for a kernel."""
    path = tmp_path / "spectralgrad-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as files:
        for name, content in PLAIN.items():
            files.writestr(name, content)
    (tmp_path / "kernel").write_bytes(b"machine code")
    return path


@pytest.mark.parametrize("name", PLATFORMS)
def test_a_wheel_for_a_platform_is_the_one_for_any_with_a_kernel_and_tags(name, wheel):
    platform = PLATFORMS[name]
    made = archive.with_kernel(wheel, wheel.with_name("kernel"), platform)
    assert made.name == f"spectralgrad-1.0-py3-none-{platform.tag}.whl"
    with zipfile.ZipFile(made) as files:
        content = {name: files.read(name) for name in files.namelist()}
    kernel = f"spectralgrad/native/{platform.file}"
    assert content.keys() == {*PLAIN, kernel}
    assert content[kernel] == b"machine code"
    described = content["spectralgrad-1.0.dist-info/WHEEL"].decode().splitlines()
    assert "Root-Is-Purelib: false" in described
    assert "Root-Is-Purelib: true" not in described
    assert [x for x in described if "Tag" in x] == [f"Tag: py3-none-{tag}" for tag in platform.tag.split(".")]
    for file, digest, size in csv.reader(io.StringIO(content.pop("spectralgrad-1.0.dist-info/RECORD").decode())):
        if not file.endswith("/RECORD"):
            found = base64.urlsafe_b64encode(hashlib.sha256(content[file]).digest()).rstrip(b"=").decode()
            assert (digest, size) == (f"sha256={found}", str(len(content.pop(file))))
    assert not content
    assert list(checks.contents(made, platform)) == []
    assert list(checks.contents(made, None)) == [f"{made.name}: contains ['{kernel}'], expected []"]
    first = made.read_bytes()
    archive.with_kernel(wheel, wheel.with_name("kernel"), platform)
    assert made.read_bytes() == first


def test_a_wheel_that_is_too_large_or_lacks_its_kernel_is_noticed(wheel, monkeypatch):
    monkeypatch.setattr(checks, "LARGEST", 100)
    too_large, missing = checks.contents(wheel, PLATFORMS["macos-arm64"])
    assert "expected less than" in too_large
    assert missing.endswith("contains [], expected ['spectralgrad/native/_kernel.dylib']")


def test_the_kernel_has_the_name_under_which_wheels_contain_it():
    own = PLATFORMS.get(this_machine())
    assert own is None or own.file == build.FILE


@pytest.fixture
def tree(tmp_path):
    """The files that state the version, as they would be at a release."""
    for name in (*release.STATED, "spectralgrad/_version.py", "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    changelog = (tmp_path / "CHANGELOG.md").read_text(encoding="utf-8")
    dated = changelog.replace(f"## {sg.__version__} – unreleased", f"## {sg.__version__} – 2026-01-31")
    (tmp_path / "CHANGELOG.md").write_text(dated, encoding="utf-8")
    return tmp_path


def test_all_files_state_the_same_version(tree):
    assert archive.version() == sg.__version__
    assert list(release.complaints(tree)) == []


@pytest.mark.parametrize("name", [*release.STATED, "CHANGELOG.md"])
def test_a_file_with_another_version_is_named(name, tree):
    text = (tree / name).read_text(encoding="utf-8")
    (tree / name).write_text(text.replace(sg.__version__, "9.9.9"), encoding="utf-8")
    (said,) = release.complaints(tree)
    assert said.startswith(name)


def test_a_changelog_without_a_date_is_no_release(tree):
    shutil.copy(ROOT / "CHANGELOG.md", tree)
    undated = f"CHANGELOG.md: the section {sg.__version__} has no date: unreleased"
    assert list(release.complaints(tree)) in ([undated], [])


def test_a_version_is_written_into_every_file(tree):
    changelog = (tree / "CHANGELOG.md").read_text(encoding="utf-8")
    (tree / "CHANGELOG.md").write_text("# Changelog\n\n## 4.5.6 – unreleased\n\n" + changelog, encoding="utf-8")
    release.set_version("4.5.6", tree)
    assert archive.version(tree / "spectralgrad") == "4.5.6"
    assert list(release.complaints(tree)) == []


@pytest.mark.parametrize("wanted", ["v1.2.3", "1.2", "1.2.3\n", ""])
def test_what_is_no_version_is_refused(wanted, tree):
    with pytest.raises(ValueError, match="expected a version such as"):
        release.set_version(wanted, tree)
    assert archive.version(tree / "spectralgrad") == sg.__version__


@pytest.mark.parametrize("breakage", [None, "  version: ${{ versoin }}"])
def test_the_conda_recipe_renders_for_every_platform(breakage, tree):
    pytest.importorskip("rattler_build", reason="rattler-build is installed by `make wheels`")
    recipe = tree / "recipe" / "recipe.yaml"
    if breakage:
        text = recipe.read_text(encoding="utf-8")
        recipe.write_text(text.replace("  version: ${{ version }}", breakage, 1), encoding="utf-8")
    assert len(list(checks.recipe(tree))) == (len(checks.CONDA) if breakage else 0)


def test_the_notes_of_a_release_are_the_section_of_its_version():
    notes = release.section()
    assert notes.startswith("### ")
    assert "\n## " not in notes
