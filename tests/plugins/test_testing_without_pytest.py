"""`tenon.testing` in an environment that has no pytest."""

import subprocess
import sys


def test_suites_say_what_to_install_and_the_rest_works():
    code = (
        "import sys; sys.modules['pytest'] = None\n"
        "import tenon, tenon.testing\n"
        "tenon.testing.assert_close(tenon.ones(2), tenon.ones(2))\n"
        "try:\n    tenon.testing.SchedulerSuite\n"
        "except ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert (
        done.stdout == "tenon.testing.SchedulerSuite needs pytest: pip install 'tenon-platform[testing]'.\n"
    )
