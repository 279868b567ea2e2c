"""Entry points of other packages: whatever they do, the commands and the methods of the library go on."""

import sys

import pytest

import spectralgrad as sg
from spectralgrad.cli import COMMANDS, main
from spectralgrad.io import plugins

COMMAND = """
def add_arguments(parser):
    parser.set_defaults(run=lambda options: print("hello from", __name__))
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs a package with one module and one entry point."""
    monkeypatch.setattr(plugins, "_tried", set())
    monkeypatch.setattr(plugins, "_unreadable", set())
    before = set(sys.modules)

    def install(package, source, points, folder="site", name=None):
        site = tmp_path / folder
        info = site / f"{package}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_bytes(b"Metadata-Version: 2.1\nName: " + (name or package.encode()) + b"\n")
        (info / "entry_points.txt").write_bytes(points)
        (site / f"{package}.py").write_text(source, "utf-8")
        if str(site) not in sys.path:
            monkeypatch.syspath_prepend(str(site))
        return info

    yield install
    for module in set(sys.modules) - before:
        if module.startswith("stranger"):
            del sys.modules[module]


def command(package, name="greet", value="add_arguments"):
    return f"[{COMMANDS}]\n{name} = {package}:{value}\n".encode()


@pytest.mark.parametrize("points", [b"[spectralgrad.commands]\nx = \xff:y\n", b"\xfe\xff\x00["])
def test_metadata_that_cannot_be_decoded_is_a_warning(points, install, capsys):
    info = install("stranger_bytes", "", points)
    install("stranger_good", COMMAND, command("stranger_good"))
    with pytest.warns(UserWarning, match=f"the entry points in .*{info.name} are ignored: UnicodeDecodeError"):
        assert main(["greet"]) == 0
    with pytest.raises(SystemExit, match="0"):  # a second warning would be an error here
        main(["--help"])
    assert "svd-pade" in sg.methods()
    assert capsys.readouterr().out.startswith("hello from stranger_good\n")


def test_a_name_that_cannot_be_decoded_does_not_matter(install, capsys):
    install("stranger_name", COMMAND, command("stranger_name"), name=b"\xff")
    assert main(["greet"]) == 0
    assert "hello" in capsys.readouterr().out


@pytest.mark.parametrize("source", ["import sys; sys.exit()", "import sys; sys.exit(3)", "raise GeneratorExit('no')"])
def test_a_package_that_ends_the_program_is_a_warning(source, install, capsys):
    install("stranger_exit", source, b"[spectralgrad.methods]\nstrange = stranger_exit:Strange\n")
    with pytest.warns(UserWarning, match="entry point 'strange' of spectralgrad.methods is ignored: .*Exit"):
        assert main(["info"]) == 0
    assert main(["info"]) == 0  # the warning is not repeated
    assert "svd-pade" in capsys.readouterr().out


def test_ctrl_c_during_an_import_is_not_held_back(install):
    install("stranger_slow", "raise KeyboardInterrupt", command("stranger_slow"))
    with pytest.raises(KeyboardInterrupt):
        plugins.load(COMMANDS, "greet")


@pytest.mark.parametrize("source", ["add_arguments = 3", "def add_arguments(parser): pass"])
def test_a_command_that_cannot_be_run_is_one_line(source, install, capsys):
    install("stranger_command", source, command("stranger_command"))
    with pytest.raises(SystemExit, match="2"):
        main(["greet"])
    assert "the package that provides the command greet adds nothing to run" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])


def test_two_packages_of_one_name_are_said(install, capsys):
    for package in ("stranger_b", "stranger_a"):
        install(package, COMMAND, command(package))
    with pytest.warns(UserWarning, match="'greet' .* several packages, stranger_a, stranger_b; stranger_a is used"):
        assert main(["greet"]) == 0
    assert capsys.readouterr().out == "hello from stranger_a\n"


def test_one_package_twice_on_the_path_is_one(install, capsys):
    for folder in ("site", "other"):
        install("stranger_twice", COMMAND, command("stranger_twice"), folder)
    assert main(["greet"]) == 0
    assert capsys.readouterr().out == "hello from stranger_twice\n"
