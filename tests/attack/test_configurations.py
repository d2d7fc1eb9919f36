"""Random configurations, by file and by ``--set``: accepted, or refused in one short line that names the key.

A key of the configuration, or one that there is not, gets a value that it may or may not have. By hand, with
the whole command: ``pytest -m manual tests/attack/test_configurations.py``.
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from tenon.errors import ConfigError
from tenon.training.config import RunConfig, resolve
from tenon.training.layers import dotted, in_one_line, read_file, read_override

MODEL = """
import tenon
from tenon.data import Splits, TensorDataset

def load(train=8, test=4, spoiled=False):
    x, y = tenon.rand(train + test, 6), tenon.zeros(train + test, dtype=tenon.int64)
    return Splits(TensorDataset(x[:train], y[:train]), TensorDataset(x[train:], y[train:]))

class Net(tenon.nn.Linear):
    def __init__(self, dropout: float = 0.0):
        super().__init__(6, 3)
"""
BASE = {"model": "small:Net", "data": "small:load", "epochs": 1, "batch_size": 20}
PROGRAM = Path(__file__).parents[1] / "training" / "programs" / "commands.py"
OTHER_KEYS = (
    "optimizer.lr", "optimizer.betas", "optimizer.foo", "optimizer.params", "optimizer.lr.x", "scheduler.gamma",
    "model_options.dropout", "data_options.train", "data_parallel.comm_hook_options.x", "foo", "foo.bar", "epochs.y",
    "a" * 10_000, "optimizer." + "b" * 10_000,
)  # fmt: skip
VALUES = (
    "0", "1", "-1", "3", "true", "1.5", "-0.0", "inf", "-inf", "nan", "1e308", "1e-320", "9223372036854775807",
    "9223372036854775808", "-9223372036854775809", "1" + "0" * 40, "9" * 5000, "0x" + "f" * 6000, '""', '"x"',
    '"os:system"', '"a:b:c"', '":"', '"\\u0000"', '"\\n"', '"\\u001b[31m"', '"\\u202e"', '"' + "x" * 9000 + '"', "[]",
    "[[nan]]", "[[inf], [1]]", "[0.9, 0.999]", "[{a = 1}]", "{}", "{a = 1}", "{name = 1}", '{name = "SGD"}',
    '{name = "StepLR", step_size = 0}', '{name = "\\u0000"}', "1979-05-27", "07:32:00", "1979-05-27T07:32:00Z",
    "{x = 1979-05-27}", '"cuda:-1"', '"world"', '"lottery"', "[" * 3000 + "]" * 3000, "{a = " * 3000 + "1" + "}" * 3000,
    "{a." + ".".join("b" * 3000) + " = 1}", "[" + "1," * 9000 + "]", "[" + "{}," * 900 + "]", "nothing", "= 1",
)  # fmt: skip


def keys(section=RunConfig, prefix=""):
    for name, field in section.model_fields.items():
        yield prefix + name
        for kind in (field.annotation, *get_args(field.annotation)):
            if hasattr(kind, "model_fields"):
                yield from keys(kind, f"{prefix}{name}.")


KEYS = (*keys(), *OTHER_KEYS)


def wrong_with(message, key):
    """What is wrong with the error ``message`` about the setting ``key``; None if nothing is."""
    if "\n" in message or not message.isprintable():
        return "not one line"
    if len(message) > 2100:
        return f"{len(message)} characters"
    shown = dotted(key.split(".")[:1])
    return None if shown in message or "(at line " in message else "does not name the key"


def wrong(count, seed, folder):
    draw = random.Random(seed)
    for _ in range(count):
        key, value = draw.choice(KEYS), draw.choice(VALUES)
        try:
            if draw.random() < 0.5:
                layer = read_override(f"{key}={value}")
            else:
                (folder / "run.toml").write_text(f"{key} = {value}\n")
                layer = read_file(folder / "run.toml")
            resolve([BASE, layer])
        except ConfigError as error:
            problem = wrong_with(in_one_line(str(error)), key)
            invalid = "run.toml is not valid TOML" in str(error)
            if problem and not (invalid and problem == "does not name the key"):
                yield f"{key[:60]} = {value[:60]}: {problem}: {str(error)[:200]!r}"


def test_random_settings_are_accepted_or_refused_by_name_in_a_short_line(tmp_path):
    assert not list(wrong(600, 9, tmp_path))


@pytest.mark.slow
def test_10000_random_settings_are_accepted_or_refused_by_name_in_a_short_line(tmp_path):
    assert not list(wrong(10_000, 10, tmp_path))


HOSTILE = {
    b"\0": "not valid TOML",
    b"\xff\xfe": "'utf-8' codec",
    b'"\\n" = 1' + b"0" * 40: r'"\n" = 1000',
    b"'\xe2\x80\xae' = nan": r'"\u202e" = nan',
    b"a" * 200_000 + b" = 1": "unknown key 'aaaa",
    b"".join(b"[a%d]\n" % i for i in range(3000)): "and 2,995 more",
    b"".join(b"k%d = 1\n" % i for i in range(3000)): "and 2,995 more",
    b"epochs = 1\nepochs = 2": "not valid TOML",
    b"[[optimizer]]\nname = 'x'": "optimizer = [{'name': 'x'}]",
    b"\nepochs = " + b"1" * 5000: "a number of 5,000 digits, more than 4,300, the limit (at line 2)",
    b"output = 'a\\u0000'\nloss = \"\\u0000\"": r"loss = '\x00': contains a null character",
    b"model_options.x = [[[nan]]]": "model_options.x = nan: is not a number",
}


@pytest.mark.parametrize("content", HOSTILE, ids=lambda content: repr(content[:16]))
def test_hostile_files_are_refused_in_a_short_line(content, tmp_path):
    (tmp_path / "run.toml").write_bytes(content)

    with pytest.raises(ConfigError) as caught:
        resolve([BASE, read_file(tmp_path / "run.toml")])

    line = in_one_line(str(caught.value))
    assert HOSTILE[content] in line and len(line) <= 2100 and line.isprintable()


@pytest.mark.manual
def test_commands_refuse_random_settings_with_status_2(tmp_path):
    (tmp_path / "small.py").write_text(MODEL)
    (tmp_path / "my.toml").write_text("".join(f"{k} = {json.dumps(v)}\n" for k, v in BASE.items()))
    draw = random.Random(int(os.environ.get("ATTACK_SEED", "11")))
    chosen = [f"{draw.choice(KEYS)}={draw.choice(VALUES)}" for _ in range(600)]
    commands = [["my.toml", "--set", "epochs=0", "--set", each] for each in chosen]

    done = subprocess.run(
        [sys.executable, PROGRAM, "train"], input=json.dumps(commands), cwd=tmp_path,
        capture_output=True, text=True, timeout=3000, check=True,
    )  # fmt: skip

    found = []
    for setting, (status, _, err, _) in zip(chosen, json.loads(done.stdout), strict=True):
        line = err.removeprefix("Error: ").rstrip("\n")
        if status != 0 and (status != 2 or wrong_with(line, setting.partition("=")[0])):
            found.append((setting[:100], status, err[-400:]))
    assert not found
