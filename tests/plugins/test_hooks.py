"""Every hook: arguments, results, order; and each has documentation and a test."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from tenon.config import Config
from tenon.errors import DeviceError, PluginHookError, PluginWarning
from tenon.extend import hookimpl
from tenon.plugins import hookspecs, registry
from tenon.plugins.manager import Host, register, unregister

HOOKS = {name: spec for name, spec in vars(hookspecs).items() if name.startswith("tenon_")}
DECLARING = {f"tenon_{kind}" for kind in hookspecs.KINDS}
EVENTS = set(HOOKS) - DECLARING
PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "hooks.md"


#: Kind -> a target and its name, where a target is not an attribute of a module.
TARGETS = dict.fromkeys(hookspecs.MODULES, ("json.decoder", "json.decoder"))


class Recorder:
    """A plugin that implements one hook and keeps what it was given."""

    def __init__(self, hook, answer=None, log=None, **options):
        self.given = []
        self.log = [] if log is None else log
        parameters = ", ".join(inspect.signature(HOOKS[hook]).parameters)
        names = [name for name in parameters.split(", ") if name]
        space = {"keep": self._keep(answer)}
        body = ", ".join(f"{name}={name}" for name in names)
        exec(f"def {hook}({parameters}):\n    return keep({body})", space)
        setattr(self, hook, hookimpl(**options)(space[hook]))

    def _keep(self, answer):
        def keep(**given):
            self.given.append(given)
            self.log.append(self)
            return answer

        return keep


@pytest.mark.parametrize("kind", sorted(hookspecs.KINDS))
def test_declaring_hook_offers_its_names_under_its_kind(empty_host, kind):
    target, name = TARGETS.get(kind, ("json:JSONDecoder", "JSONDecoder"))
    plugin = Recorder(f"tenon_{kind}", {"thing": target})
    empty_host.register(plugin, "mine")

    assert plugin.given == []
    assert registry.names(kind) == ["thing"]
    assert registry.resolve(kind, "thing").__name__ == name
    assert plugin.given == [{}]


@pytest.mark.parametrize("kind", sorted(hookspecs.KINDS))
def test_declaring_hook_is_called_once(empty_host, kind):
    plugin = Recorder(f"tenon_{kind}", {"thing": TARGETS.get(kind, ["json:JSONDecoder"])[0]})
    empty_host.register(plugin, "mine")

    for _ in range(3):
        registry.names(kind)

    assert len(plugin.given) == 1


def test_tenon_configure_reaches_plugins_that_come_late():
    config = Config(settings=(("TENON_TIGER_BETA", "0.5"),))
    host = Host(config, entry_points=())
    host.load()
    late = Recorder("tenon_configure")

    host.register(late, "late")

    assert late.given == [{"config": config}]
    assert late.given[0]["config"].setting("tiger_beta") == "0.5"


def test_tenon_configure_runs_before_the_other_hooks_of_a_plugin(empty_host):
    log = []

    class Ordered:
        @hookimpl
        def tenon_configure(self, config):
            log.append("configure")

        @hookimpl
        def tenon_optimizers(self):
            log.append("optimizers")
            return {}

    empty_host.register(Ordered(), "ordered")
    registry.names("optimizers")

    assert log == ["configure", "optimizers"]


def test_tenon_default_device_takes_the_first_answer(empty_host):
    log = []
    empty_host.register(Recorder("tenon_default_device", "cpu", log), "early")
    empty_host.register(silent := Recorder("tenon_default_device", None, log), "silent")
    empty_host.register(Recorder("tenon_default_device", "cuda:1", log, tryfirst=True), "keen")

    assert empty_host.hook.tenon_default_device(requested=None) == "cuda:1"
    assert len(log) == 1 and not silent.given


def test_tenon_default_device_without_any_answer_is_none(empty_host):
    assert empty_host.hook.tenon_default_device(requested="cuda") is None


def test_tenon_make_optimizer_is_answered_by_the_host_last(empty_host):
    class Tiger:
        def __init__(self, params, lr):
            self.params, self.lr = params, lr

    empty_host.register(Recorder("tenon_optimizers", {"Tiger": Tiger}), "tiger")

    built = empty_host.hook.tenon_make_optimizer(name="Tiger", params=["w"], options={"lr": 0.1})

    assert (type(built), built.params, built.lr) == (Tiger, ["w"], 0.1)


def test_tenon_make_optimizer_can_be_replaced_and_wrapped(empty_host):
    class Wraps:
        @hookimpl(wrapper=True)
        def tenon_make_optimizer(self, options):
            inner = yield
            return ("wrapped", inner, options)

    empty_host.register(Recorder("tenon_make_optimizer", "mine"), "replaces")
    empty_host.register(Wraps(), "wraps")

    built = empty_host.hook.tenon_make_optimizer(name="Any", params=[], options={"lr": 1})

    assert built == ("wrapped", "mine", {"lr": 1})


def test_tenon_make_communicator_takes_the_first_answer(empty_host):
    empty_host.register(Recorder("tenon_make_communicator", "over pigeons"), "pigeons")

    assert empty_host.hook.tenon_make_communicator(config=empty_host.config) == "over pigeons"


def test_tenon_make_communicator_without_any_answer_is_none(empty_host):
    assert empty_host.hook.tenon_make_communicator(config=empty_host.config) is None


ARGUMENTS = {
    "tenon_prepare_model": {"model": "model", "session": "session"},
    "tenon_session_start": {"session": "session"},
    "tenon_session_finish": {"session": "session", "error": KeyError("lost")},
    "tenon_epoch_begin": {"session": "session", "epoch": 1},
    "tenon_epoch_end": {"session": "session", "epoch": 1, "metrics": {"test_loss": 0.5}},
    "tenon_evaluation_begin": {"session": "session"},
    "tenon_evaluation_end": {"session": "session", "metrics": {"loss": 0.5}},
    "tenon_gradients_ready": {"session": "session", "step": 3},
    "tenon_step_begin": {"session": "session", "step": 3},
    "tenon_step_end": {"session": "session", "step": 3, "metrics": {"loss": 0.5}},
    "tenon_open_observers": {"session": "session"},
    "tenon_graph_passes": {"target": "cpu"},
    "tenon_report": {"metrics": {"loss": 0.5}, "step": 3},
}


@pytest.mark.parametrize("hook", sorted(ARGUMENTS))
def test_collecting_hook_reaches_every_plugin_with_its_arguments(empty_host, hook):
    first, second = Recorder(hook, ["a"]), Recorder(hook, ["b"])
    empty_host.register(first, "first")
    empty_host.register(second, "second")

    answers = getattr(empty_host.hook, hook)(**ARGUMENTS[hook])

    assert first.given == second.given == [ARGUMENTS[hook]]
    assert sorted(answers) == [["a"], ["b"]]


def test_tenon_prepare_model_runs_in_plugin_order(install, fresh_host):
    text = """
        from tenon.extend import hookimpl

        @hookimpl
        def tenon_prepare_model(model):
            model.append(__name__)
        """
    for name in ("b", "a", "c"):
        install(f"tenon-{name}", {name: f"tenon_{name}"}, {f"tenon_{name}.py": text})
    host = fresh_host(plugins=("a", "b", "c"))
    host.load()
    model = []

    host.hook.tenon_prepare_model(model=model, session=None)

    assert model == ["tenon_a", "tenon_b", "tenon_c"]


def test_tenon_checkpoint_save_gives_each_plugin_a_section_of_its_own(empty_host):
    class Saves:
        def __init__(self, value):
            self.value = value

        @hookimpl
        def tenon_checkpoint_save(self, section, session):
            if self.value is not None:
                section["value"] = (self.value, session)

    empty_host.register(Saves(1), "one")
    empty_host.register(Saves(2), "two")
    empty_host.register(Saves(None), "nothing")

    assert empty_host.save_sections("s") == {"one": {"value": (1, "s")}, "two": {"value": (2, "s")}}


def test_tenon_checkpoint_load_gives_each_plugin_what_it_saved(empty_host):
    one, two = Recorder("tenon_checkpoint_load"), Recorder("tenon_checkpoint_load")
    empty_host.register(one, "one")
    empty_host.register(two, "two")

    empty_host.load_sections({"one": {"value": 1}}, "s")

    assert one.given == [{"section": {"value": 1}, "session": "s"}]
    assert two.given == [{"section": {}, "session": "s"}]


def test_tenon_checkpoint_load_warns_of_a_plugin_that_is_gone(empty_host):
    one = Recorder("tenon_checkpoint_load")
    empty_host.register(one, "one")

    with pytest.warns(PluginWarning, match="not loaded or do not restore it: gone"):
        empty_host.load_sections({"one": {"value": 1}, "gone": {}}, "s")

    assert one.given == [{"section": {"value": 1}, "session": "s"}]


def test_hook_that_raises_is_reported_with_its_plugin_and_cause(empty_host):
    class Innocent:
        @hookimpl
        def tenon_step_end(self): ...

    class Guilty:
        @hookimpl
        def tenon_step_end(self, metrics):
            return metrics["accuracy"]

    empty_host.register(Innocent(), "innocent")
    empty_host.register(Guilty(), "guilty")
    empty_host.register(Innocent(), "bystander")

    with pytest.raises(
        PluginHookError, match=r"plugin 'guilty' .*raised in tenon_step_end: KeyError"
    ) as caught:
        empty_host.hook.tenon_step_end(session=None, step=1, metrics={})

    assert isinstance(caught.value.__cause__, KeyError)
    assert "TENON_DISABLE_PLUGINS=guilty" in str(caught.value)


def test_two_plugins_of_one_class_are_distinguished(empty_host):
    class Sometimes:
        def __init__(self, fails):
            self.fails = fails

        @hookimpl
        def tenon_report(self):
            if self.fails:
                raise ValueError("no")

    for name, fails in (("first", False), ("second", True), ("third", False)):
        empty_host.register(Sometimes(fails), name)

    with pytest.raises(PluginHookError, match="plugin 'second'"):
        empty_host.hook.tenon_report(metrics={}, step=0)


def test_error_of_tenon_keeps_its_type_and_gets_a_note(empty_host):
    class Guilty:
        @hookimpl
        def tenon_default_device(self):
            raise DeviceError("no such device")

    empty_host.register(Guilty(), "guilty")

    with pytest.raises(DeviceError) as caught:
        empty_host.hook.tenon_default_device(requested=None)

    assert caught.value.__notes__ == ["plugin 'guilty' (registered by hand) raised in tenon_default_device."]


def test_error_of_a_caller_blames_no_plugin(empty_host):
    empty_host.register(Recorder("tenon_report"), "innocent")

    with pytest.raises(Exception, match="metrics") as caught:
        empty_host.hook.tenon_report(step=0)

    assert not isinstance(caught.value, PluginHookError)


def test_interrupt_in_a_hook_passes_through(empty_host):
    class Interrupts:
        @hookimpl
        def tenon_step_end(self):
            raise KeyboardInterrupt

    empty_host.register(Interrupts(), "interrupts")

    with pytest.raises(KeyboardInterrupt):
        empty_host.hook.tenon_step_end(session=None, step=0, metrics={})


def test_register_and_unregister_work_on_the_process(empty_host):
    plugin = Recorder("tenon_report")

    info = register(plugin, "mine")
    assert [one.name for one in empty_host.plugins] == ["mine"]

    assert unregister(plugin) is info
    assert empty_host.plugins == ()


@pytest.mark.together
@pytest.mark.parametrize("hook", sorted(HOOKS))
def test_every_hook_states_what_a_plugin_author_must_know(hook):
    text = inspect.getdoc(HOOKS[hook])

    assert re.search(r"^Called: .+", text, re.M), "when and how often"
    assert re.search(r"^Mode: (collect|firstresult|historic)", text, re.M)
    assert re.search(r"^Example: ``.+``", text, re.M)
    parameters = inspect.signature(HOOKS[hook]).parameters
    if parameters:
        described = re.search(r"^Args: (.+?)(?=^\w+:|\Z)", text, re.M | re.S).group(1)
        assert all(f"``{name}``" in described for name in parameters)


@pytest.mark.together
@pytest.mark.parametrize("hook", sorted(HOOKS))
def test_stated_mode_is_the_real_one(hook):
    options = HOOKS[hook].tenon_spec
    stated = re.search(r"^Mode: (\w+)", inspect.getdoc(HOOKS[hook]), re.M).group(1)

    real = "historic" if options["historic"] else "firstresult" if options["firstresult"] else "collect"
    assert stated == real


@pytest.mark.together
@pytest.mark.parametrize("hook", sorted(HOOKS))
def test_every_hook_has_its_entry_on_the_page(hook):
    entry = _entries().get(hook)

    assert entry is not None, f"docs/guide/hooks.md has no entry for {hook}"
    for item in ("Arguments", "Result", "Mode", "When", "Cost"):
        assert re.search(rf"^- \*\*{item}\*\*: \S", entry, re.M), f"{hook}: {item}"
    mode = re.search(r"^Mode: (\w+)", inspect.getdoc(HOOKS[hook]), re.M).group(1)
    assert f"- **Mode**: {mode}" in entry
    arguments = re.search(r"^- \*\*Arguments\*\*: (.+)", entry, re.M).group(1)
    for name in inspect.signature(HOOKS[hook]).parameters:
        assert f"`{name}`" in arguments


def test_page_describes_no_hook_that_does_not_exist():
    assert set(_entries()) == set(HOOKS)


@pytest.mark.parametrize("hook", sorted(EVENTS))
def test_every_event_hook_has_a_test_of_its_own(hook):
    tests = [name for name in globals() if name.startswith(f"test_{hook}")]

    assert tests or hook in ARGUMENTS


def _entries():
    parts = re.split(r"^### `(tenon_\w+)`.*$", PAGE.read_text(encoding="utf-8"), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))
