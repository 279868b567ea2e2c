"""The table of versions of torch: it counts what a report says, and begins with the oldest version allowed."""

import re
import sys

from tests.documents import ROOT
from tools.matrix import VERSIONS, counted, interpreter, table

REPORT = """<testsuites><testsuite>
<testcase/><testcase/><testcase><failure/></testcase><testcase><error/></testcase>
<testcase><skipped message="torch has no Muon"/></testcase><testcase><skipped message="torch has no Muon"/></testcase>
</testsuite></testsuites>"""


def test_a_report_is_counted(tmp_path):
    report = tmp_path / "report.xml"
    assert counted(report)["failed"] == 1  # there is none: the run has failed
    report.write_text(REPORT)
    result = {"torch": "2.6.0", "python": "3.10.1", **counted(report)}
    lines = table([result]).splitlines()
    assert lines[0] == "| torch | python | passed | failed | skipped |"
    assert lines[2:] == ["| 2.6.0 | 3.10.1 | 2 | 2 | 2 |", "torch 2.6.0: 2 skipped: torch has no Muon"]


def test_it_begins_with_the_oldest_version_that_is_allowed():
    required = re.search(r'"torch>=([\d.]+)"', (ROOT / "pyproject.toml").read_text())[1]
    assert next(iter(VERSIONS)).startswith(f"{required}.")


def test_an_interpreter_that_is_missing_is_replaced():
    assert interpreter("2.99") == interpreter("") == sys.executable
