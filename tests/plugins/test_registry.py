"""Names to objects: resolution, clashes, near matches."""

from __future__ import annotations

import warnings

import pytest

from tenon.errors import (
    PluginClashError,
    PluginNotFoundError,
    PluginTargetError,
    PluginWarning,
    TenonError,
)
from tenon.extend import Optimizer, hookimpl
from tenon.plugins import registry
from tenon.plugins.diagnose import plugin_report


def test_listing_imports_no_target(simple, fresh_host):
    import sys

    simple("tiger", "Tiger")
    fresh_host()

    assert "Tiger" in registry.names("optimizers")
    assert "tenon_tiger.classes" not in sys.modules
    assert registry.resolve("optimizers", "Tiger") is sys.modules["tenon_tiger.classes"].Tiger


def test_component_says_whose_it_is(simple, fresh_host):
    simple("tiger", "Tiger")
    fresh_host()

    found = registry.component("optimizers", "Tiger")

    assert found.target == "tenon_tiger.classes:Tiger"
    assert str(found.plugin) == "'tiger' (tenon-tiger 0.1)"
    assert found.address == "tenon-tiger:Tiger"


def test_clash_names_both_distributions_and_how_to_choose(simple, fresh_host):
    simple("tiger", "Tiger")
    simple("wild", "Tiger")
    fresh_host()

    with pytest.raises(PluginClashError) as caught:
        registry.resolve("optimizers", "Tiger")

    message = str(caught.value)
    assert "'tiger' (tenon-tiger 0.1)" in message and "'wild' (tenon-wild 0.1)" in message
    assert "'tenon-tiger:Tiger' or 'tenon-wild:Tiger'" in message


def test_clashing_name_is_reached_through_its_distribution_or_plugin(simple, fresh_host):
    simple("tiger", "Tiger")
    simple("wild", "Tiger")
    fresh_host()

    assert registry.resolve("optimizers", "tenon-tiger:Tiger").__module__ == "tenon_tiger.classes"
    assert registry.resolve("optimizers", "Tenon_Wild:Tiger").__module__ == "tenon_wild.classes"
    assert registry.resolve("optimizers", "wild:Tiger").__module__ == "tenon_wild.classes"


def test_names_of_tenon_itself_are_reserved(install, fresh_host):
    text = """
        from tenon.extend import hookimpl

        @hookimpl
        def tenon_backends():
            return {"cpu": "tenon_lynx:Cpu"}

        @hookimpl
        def tenon_commands():
            return {"train": "tenon_lynx:train"}

        class Cpu:
            pass
        """
    install("tenon-lynx", {"lynx": "tenon_lynx"}, {"tenon_lynx.py": text})
    host = fresh_host()

    with pytest.warns(
        PluginWarning, match=r"'cpu' is reserved for tenon, and plugin 'lynx' .* for another name"
    ):
        assert registry.component("backends", "cpu").plugin.first_party
    with warnings.catch_warnings(action="error"):
        assert registry.component("backends", "cpu").plugin.first_party
    assert registry.resolve("backends", "tenon-lynx:cpu").__module__ == "tenon_lynx"
    texts = [str(error) for error in plugin_report(host, ["train"]).clashes]
    assert len(texts) == 2 and "the command 'train' of plugin 'lynx'" in texts[1]


def test_clash_leaves_other_names_alone(simple, fresh_host):
    simple("tiger", "Tiger", "Leo")
    simple("wild", "Tiger")
    fresh_host()

    assert registry.resolve("optimizers", "Leo").__name__ == "Leo"
    assert registry.names("optimizers").count("Tiger") == 1


def test_unknown_name_suggests_near_ones(simple, fresh_host):
    simple("tiger", "Tiger", "Leopard")
    fresh_host()

    with pytest.raises(PluginNotFoundError, match=r"no optimizer 'Tigre'. Did you mean 'Tiger'\?"):
        registry.resolve("optimizers", "Tigre")
    with pytest.raises(PluginNotFoundError, match="Did you mean 'Tiger'"):
        registry.resolve("optimizers", "tiger")


def test_unknown_name_lists_the_known_where_none_is_near(empty_host):
    empty_host.register(_declaring(optimizers={"Tiger": object, "Leo": object}), "cats")

    with pytest.raises(PluginNotFoundError, match=r"no optimizer 'Zzz'\. Known: Leo, Tiger"):
        registry.resolve("optimizers", "Zzz")


def test_unknown_name_of_a_kind_nobody_offers_says_so(empty_host):
    with pytest.raises(PluginNotFoundError, match="No loaded plugin offers any"):
        registry.resolve("targets", "onnx")


def test_unknown_name_chains_the_traceback_of_the_plugin_that_failed(install, fresh_host):
    install(
        "tenon-tiger", {"tiger": "tenon_tiger"}, {"tenon_tiger.py": "raise OSError('libroar.so not found')"}
    )
    host = fresh_host()
    with pytest.warns(PluginWarning):
        host.load()

    with pytest.raises(
        PluginNotFoundError, match=r"- 'tiger' .tenon-tiger 0.1.: OSError: libroar.so"
    ) as caught:
        registry.resolve("optimizers", "Tiger")

    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.__traceback__ is not None


def test_unknown_name_chains_all_failures_where_there_are_several(install, fresh_host):
    install("tenon-one", {"one": "tenon_one"}, {"tenon_one.py": "1 / 0"})
    install("tenon-two", {"two": "tenon_two"}, {"tenon_two.py": "raise SystemExit"})
    with pytest.warns(PluginWarning):
        fresh_host().load()

    with pytest.raises(PluginNotFoundError) as caught:
        registry.resolve("optimizers", "Tiger")

    cause = caught.value.__cause__
    assert isinstance(cause, BaseExceptionGroup)
    assert {type(one) for one in cause.exceptions} == {ZeroDivisionError, SystemExit}


def test_unknown_name_mentions_disabled_plugins(simple, fresh_host):
    simple("tiger", "Tiger")
    fresh_host(disable_plugins=("tiger",))

    with pytest.raises(PluginNotFoundError, match="Disabled plugins: tiger"):
        registry.resolve("optimizers", "Tiger")


def test_unknown_kind_suggests_the_right_one(empty_host):
    with pytest.raises(PluginNotFoundError, match=r"no kind 'optimizer'\. Did you mean 'optimizers'"):
        registry.resolve("optimizer", "Tiger")


@pytest.mark.parametrize("target", ["nowhere.at.all:Tiger", "json:Tiger", "json:JSONDecoder.tiger"])
def test_target_that_does_not_resolve_names_target_and_plugin(empty_host, target):
    empty_host.register(_declaring(optimizers={"Tiger": target}), "cats")

    with pytest.raises(PluginTargetError) as caught:
        registry.resolve("optimizers", "Tiger")

    assert target in str(caught.value) and "'cats'" in str(caught.value)
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value.__cause__, (ImportError, AttributeError))


def test_target_that_exits_does_not_end_the_process(install, empty_host):
    install("tenon-exit", {}, {"tenon_exit.py": "import sys; sys.exit(1)"})
    empty_host.register(_declaring(optimizers={"Tiger": "tenon_exit:Tiger"}), "cats")

    with pytest.raises(PluginTargetError, match="SystemExit"):
        registry.resolve("optimizers", "Tiger")


def test_target_reaches_into_a_class(empty_host):
    empty_host.register(_declaring(optimizers={"Decode": "json:JSONDecoder.decode"}), "cats")

    import json

    assert registry.resolve("optimizers", "Decode") is json.JSONDecoder.decode


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ({"Tiger": "no target"}, "'no target' is not a target"),
        ({"Tiger": "module."}, "is not a target"),
        ({"a:b": "m:a"}, "Use a string without ':'"),
        ({3: "m:a"}, "declares the name 3"),
        (["Tiger"], "returned a list, not a mapping"),
    ],
)
def test_malformed_declaration_is_a_failure_of_its_plugin_only(empty_host, answer, complaint):
    empty_host.register(_declaring(optimizers=answer), "cats")
    empty_host.register(_declaring(optimizers={"Good": object}), "good")

    with pytest.warns(PluginWarning, match="'cats'"):
        names = registry.names("optimizers")

    assert names == ["Good"]
    assert complaint in str(empty_host.failures[0].error)
    assert empty_host.failures[0].stage == "declare"


def test_failing_declaration_is_warned_of_once(empty_host):
    class Raises:
        @hookimpl
        def tenon_optimizers(self):
            raise ValueError("not today")

    empty_host.register(Raises(), "raises")
    with pytest.warns(PluginWarning, match="not today"):
        assert registry.names("optimizers") == []

    empty_host.register(_declaring(optimizers={"Good": object}), "good")

    assert registry.names("optimizers") == ["Good"]
    assert len(empty_host.failures) == 1


def test_errors_are_caught_by_the_builtin_classes_too():
    assert issubclass(PluginNotFoundError, (TenonError, AttributeError, LookupError))
    assert issubclass(PluginNotFoundError, AttributeError) and issubclass(PluginNotFoundError, LookupError)


def _declaring(**kinds):
    methods = {f"tenon_{kind}": hookimpl(_returning(answer)) for kind, answer in kinds.items()}
    return type("Declaring", (), methods)()


def _returning(answer):
    def declare(self):
        return answer

    return declare


@pytest.mark.parametrize(
    ("target", "what"), [(["a"], "a list"), (object, "the class object"), (len, "a builtin_")]
)
def test_a_target_of_the_wrong_kind_is_named_with_its_plugin(empty_host, target, what):
    empty_host.register(_declaring(optimizers={"Tiger": target}), "cats")

    with pytest.raises(
        PluginTargetError, match=f"optimizer 'Tiger' is {what}.*plugin 'cats'.*extend.Optimizer"
    ):
        registry.resolve_class("optimizers", "Tiger", Optimizer)
