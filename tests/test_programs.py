"""``spectralgrad rescue`` and ``doctor`` run a program as ``python`` does: one table of behaviours, compared."""

import signal
import zipfile

import pytest

from .programs import runs, write

FACTS = """\
'''Facts about how it is run.'''
import os, signal, sys
names = {name: repr(value) for name, value in globals().items() if name not in ("os", "signal", "sys")}
import atexit, multiprocessing, pickle, threading, time, traceback, warnings

class Result:
    number: int = 3

count: int = 1

def save(when):
    print(when, pickle.loads(pickle.dumps(Result())).number, flush=True)

def late():
    threading.main_thread().join()
    save("in a thread, after the end of the main thread")

def report():
    for name in ("__builtins__", "__loader__"):
        names[name] = names[name].split(" at ")[0]
    for line in (*names.items(), sys.argv, sys.path, sys.flags, sys.orig_argv[1:], sys.stdout.errors, sys.excepthook):
        print(line)
    print(__annotations__, sys.modules["__main__"].__dict__ is globals(), len(traceback.extract_stack()))
    print(sorted(os.environ.items()), os.getcwd(), sys.stdin.read())
    print(threading.current_thread() is threading.main_thread(), signal.getsignal(signal.SIGINT))
    print("sitecustomize" in sys.modules, [name for name in sys.modules if "spectralgrad" in name])

if __name__ == "__main__":
    report()
    warnings.warn("of the caller", stacklevel=2)
    atexit.register(save, "at exit")
    threading.Thread(target=late).start()
    if "spawn" in sys.argv:
        process = multiprocessing.get_context("spawn").Process(target=save, args=("in a process",))
        process.start()
        process.join()
    print("é")
"""

ENDS = {
    "nothing": "pass",
    "exit": "sys.exit()",
    "status": "sys.exit(3)",
    "text": "sys.exit('a text')",
    "large": "sys.exit(2**40 + 5)",
    "object": "sys.exit([1, 2])",
    "exception": "fail()",
    "group": "raise LookupError('second') from ZeroDivisionError('first')",
    "interrupt": "raise KeyboardInterrupt",
    "signal": "os.kill(os.getpid(), signal.SIGINT); time.sleep(60)",
    "terminated": "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)",
    "hook": "sys.excepthook = lambda *what: print('hook', what[:2], tb(what[2])); fail()",
    "failing hook": "sys.excepthook = lambda *what: fail(); raise LookupError('first')",
    "interrupted hook": "sys.excepthook = lambda *what: print('hook'); raise KeyboardInterrupt",
    "thread": "threading.Thread(target=fail).start()",
    "at exit": "atexit.register(fail); sys.exit(4)",
    "stack": "traceback.print_stack(); sys._getframe(1)",
    "recursion": "deep = lambda n: deep(n + 1); deep(0)",
    "closed": "sys.stderr.close(); fail()",
    "import": "import no_such_module",
    "_exit": "os._exit(7)",
}
END = """\
import atexit, os, signal, sys, threading, time, traceback
def fail():
    return 1 / 0
def tb(traceback):
    return [traceback.tb_frame.f_code.co_name, traceback.tb_next and tb(traceback.tb_next)]
atexit.register(print, "at exit")
print("begin", flush=True)
{}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def agree(found):
    plain, rescued, examined = found
    assert rescued == plain
    assert examined == plain
    return plain


@pytest.mark.parametrize(
    "target",
    [
        "facts.py spawn",
        "./a_folder/facts.py -m x --lr 3",
        "link.py",
        "-m facts spawn",
        "-m a_package",
        "-m a_package.facts -m x",
        "a_package",
        "archive.zip",
    ],
)
def test_how_the_program_sees_itself(folder, target):
    for name in ("facts.py", "a_folder/facts.py", "a_package/facts.py", "a_package/__main__.py"):
        write(folder / name, FACTS)
    write(folder / "a_package" / "__init__.py", "print('imported once')")
    (folder / "link.py").symlink_to("a_folder/facts.py")
    with zipfile.ZipFile(folder / "archive.zip", "w") as archive:
        archive.writestr("__main__.py", FACTS)
    status, out, err = agree(runs(*target.split(), given="from stdin"))
    assert (status, out.count("from stdin"), out.count("at exit 3")) == (0, 1, 1), err
    assert "in a thread, after the end of the main thread 3" in out
    assert ("in a process 3" in out) is ("spawn" in target)
    assert "UserWarning: of the caller" in err
    assert "spectralgrad" not in err


@pytest.mark.parametrize("end", ENDS)
def test_how_the_program_ends(folder, end):
    write(folder / "ends.py", END.format(ENDS[end]))
    agree(runs("ends.py"))


def test_what_ends_look_like(folder):
    """The interpreter's side of the table, so that it is not compared with something else that is wrong."""
    write(folder / "ends.py", END.format(ENDS["signal"]))
    assert agree(runs("ends.py"))[0] == -signal.SIGINT
    write(folder / "ends.py", END.format(ENDS["exception"]))
    status, out, err = agree(runs("ends.py"))
    assert (status, out) == (1, "begin\nat exit\n")
    assert err.startswith("Traceback (most recent call last):\n  File")
    assert err.count("File") == 2


def test_source_that_cannot_be_compiled(folder):
    write(folder / "wrong.py", "x = (")
    assert "SyntaxError" in agree(runs("wrong.py"))[2]
    (folder / "wrong.py").write_bytes(b"x = '\xff'")
    assert "SyntaxError" in agree(runs("wrong.py"))[2]


@pytest.mark.parametrize("module", ["no_such_module", "no_such_module.train", "json.no_such_module", "failing.train"])
def test_a_module_that_cannot_be_found(folder, module):
    write(folder / "failing" / "__init__.py", "import no_such_module")
    status, _, err = agree(runs("-m", module))
    assert status == 1
    assert "no_such_module" in err


@pytest.mark.parametrize("path", [None, "", "a_folder", "a_folder:other"])
def test_the_path_and_sitecustomize_of_the_machine(folder, path, monkeypatch):
    write(folder / "facts.py", FACTS)
    write(folder / "a_folder" / "sitecustomize.py", "import sys; print('customized', sys.path)")
    write(folder / "other" / "sitecustomize.py", "")
    if path is None:
        monkeypatch.delenv("PYTHONPATH", raising=False)
    else:
        monkeypatch.setenv("PYTHONPATH", path)
    assert agree(runs("facts.py"))[1].count("customized") == bool(path)


def test_a_sitecustomize_that_fails(folder, monkeypatch):
    write(folder / "facts.py", FACTS)
    monkeypatch.setenv("PYTHONPATH", str(folder / "a_folder"))
    for text in ("1 / 0", "import no_such_module"):
        write(folder / "a_folder" / "sitecustomize.py", text)
        assert "Error in sitecustomize" in agree(runs("facts.py"))[2]
