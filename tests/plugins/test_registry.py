"""Names to objects: resolution, clashes, near matches."""

from __future__ import annotations

import pytest

from tenon.errors import (
    PluginClashError,
    PluginNotFoundError,
    PluginTargetError,
    PluginWarning,
    TenonError,
)
from tenon.extend import hookimpl
from tenon.plugins import registry


def test_listing_imports_no_target(simple, fresh_host):
    import sys

    simple("lion", "Lion")
    fresh_host()

    assert "Lion" in registry.names("optimizers")
    assert "tenon_lion.classes" not in sys.modules
    assert registry.resolve("optimizers", "Lion") is sys.modules["tenon_lion.classes"].Lion


def test_component_says_whose_it_is(simple, fresh_host):
    simple("lion", "Lion")
    fresh_host()

    found = registry.component("optimizers", "Lion")

    assert found.target == "tenon_lion.classes:Lion"
    assert str(found.plugin) == "'lion' (tenon-lion 0.1)"
    assert found.address == "tenon-lion:Lion"


def test_clash_names_both_distributions_and_how_to_choose(simple, fresh_host):
    simple("lion", "Lion")
    simple("pride", "Lion")
    fresh_host()

    with pytest.raises(PluginClashError) as caught:
        registry.resolve("optimizers", "Lion")

    message = str(caught.value)
    assert "'lion' (tenon-lion 0.1)" in message and "'pride' (tenon-pride 0.1)" in message
    assert "'tenon-lion:Lion' or 'tenon-pride:Lion'" in message


def test_clashing_name_is_reached_through_its_distribution_or_plugin(simple, fresh_host):
    simple("lion", "Lion")
    simple("pride", "Lion")
    fresh_host()

    assert registry.resolve("optimizers", "tenon-lion:Lion").__module__ == "tenon_lion.classes"
    assert registry.resolve("optimizers", "Tenon_Pride:Lion").__module__ == "tenon_pride.classes"
    assert registry.resolve("optimizers", "pride:Lion").__module__ == "tenon_pride.classes"


def test_clash_leaves_other_names_alone(simple, fresh_host):
    simple("lion", "Lion", "Leo")
    simple("pride", "Lion")
    fresh_host()

    assert registry.resolve("optimizers", "Leo").__name__ == "Leo"
    assert registry.names("optimizers").count("Lion") == 1


def test_unknown_name_suggests_near_ones(simple, fresh_host):
    simple("lion", "Lion", "Leopard")
    fresh_host()

    with pytest.raises(PluginNotFoundError, match=r"no optimizer 'Loin'. Did you mean 'Lion'\?"):
        registry.resolve("optimizers", "Loin")
    with pytest.raises(PluginNotFoundError, match="Did you mean 'Lion'"):
        registry.resolve("optimizers", "lion")


def test_unknown_name_lists_the_known_where_none_is_near(empty_host):
    empty_host.register(_declaring(optimizers={"Lion": object, "Leo": object}), "cats")

    with pytest.raises(PluginNotFoundError, match=r"no optimizer 'Zzz'\. Known: Leo, Lion"):
        registry.resolve("optimizers", "Zzz")


def test_unknown_name_of_a_kind_nobody_offers_says_so(empty_host):
    with pytest.raises(PluginNotFoundError, match="No loaded plugin offers any"):
        registry.resolve("exporters", "onnx")


def test_unknown_name_chains_the_traceback_of_the_plugin_that_failed(install, fresh_host):
    install("tenon-lion", {"lion": "tenon_lion"}, {"tenon_lion.py": "raise OSError('libroar.so not found')"})
    host = fresh_host()
    with pytest.warns(PluginWarning):
        host.load()

    with pytest.raises(
        PluginNotFoundError, match=r"- 'lion' .tenon-lion 0.1.: OSError: libroar.so"
    ) as caught:
        registry.resolve("optimizers", "Lion")

    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.__traceback__ is not None


def test_unknown_name_chains_all_failures_where_there_are_several(install, fresh_host):
    install("tenon-one", {"one": "tenon_one"}, {"tenon_one.py": "1 / 0"})
    install("tenon-two", {"two": "tenon_two"}, {"tenon_two.py": "raise SystemExit"})
    with pytest.warns(PluginWarning):
        fresh_host().load()

    with pytest.raises(PluginNotFoundError) as caught:
        registry.resolve("optimizers", "Lion")

    cause = caught.value.__cause__
    assert isinstance(cause, BaseExceptionGroup)
    assert {type(one) for one in cause.exceptions} == {ZeroDivisionError, SystemExit}


def test_unknown_name_mentions_disabled_plugins(simple, fresh_host):
    simple("lion", "Lion")
    fresh_host(disable_plugins=("lion",))

    with pytest.raises(PluginNotFoundError, match="Disabled plugins: lion"):
        registry.resolve("optimizers", "Lion")


def test_unknown_kind_suggests_the_right_one(empty_host):
    with pytest.raises(PluginNotFoundError, match=r"no kind 'optimizer'\. Did you mean 'optimizers'"):
        registry.resolve("optimizer", "Lion")


@pytest.mark.parametrize("target", ["nowhere.at.all:Lion", "json:Lion", "json:JSONDecoder.lion"])
def test_target_that_does_not_resolve_names_target_and_plugin(empty_host, target):
    empty_host.register(_declaring(optimizers={"Lion": target}), "cats")

    with pytest.raises(PluginTargetError) as caught:
        registry.resolve("optimizers", "Lion")

    assert target in str(caught.value) and "'cats'" in str(caught.value)
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value.__cause__, (ImportError, AttributeError))


def test_target_that_exits_does_not_end_the_process(install, empty_host):
    install("tenon-exit", {}, {"tenon_exit.py": "import sys; sys.exit(1)"})
    empty_host.register(_declaring(optimizers={"Lion": "tenon_exit:Lion"}), "cats")

    with pytest.raises(PluginTargetError, match="SystemExit"):
        registry.resolve("optimizers", "Lion")


def test_target_reaches_into_a_class(empty_host):
    empty_host.register(_declaring(optimizers={"Decode": "json:JSONDecoder.decode"}), "cats")

    import json

    assert registry.resolve("optimizers", "Decode") is json.JSONDecoder.decode


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ({"Lion": "no target"}, "'no target' is no target"),
        ({"Lion": "module."}, "is no target"),
        ({"a:b": "m:a"}, "Use a string without ':'"),
        ({3: "m:a"}, "declares the name 3"),
        (["Lion"], "returned a list, not a mapping"),
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
