"""Finding and importing plugins: broken ones are reported, the others are loaded."""

from __future__ import annotations

import subprocess
import sys
import threading
import traceback

import pytest

from tenon.config import Config
from tenon.errors import PluginError, PluginHookError, PluginWarning
from tenon.extend import hookimpl
from tenon.plugins import loader
from tenon.plugins.manager import Host, host, use_host

BROKEN = """
    import package_that_nobody_installed
    """
GOOD_HOOK = """
    from tenon.extend import hookimpl

    @hookimpl
    def tenon_optimizers():
        return {"Good": "tenon_good.plugin:Good"}

    class Good: pass
    """


def _install_good(install):
    install("tenon-good", {"good": "tenon_good.plugin"}, {"tenon_good/plugin.py": GOOD_HOOK})


def test_first_party_plugins_come_in_through_their_entry_points():
    points = {point.name: point.dist.name for point in loader.installed_entry_points()}

    assert points["tenon_cpu"] == "tenon-platform"
    assert points["tenon_optimizers"] == "tenon-platform"


def test_plugin_order_is_first_party_first_then_by_name(simple, fresh_host):
    simple("zebra", "Zebra")
    simple("ant", "Ant")

    names = [info.name for info in _loaded(fresh_host()).plugins]

    assert names[-2:] == ["ant", "zebra"]
    assert names[:-2] == sorted(names[:-2]) and "tenon_cpu" in names


def test_plugin_whose_import_fails_is_kept_as_a_failure_and_others_load(install, fresh_host):
    install("tenon-broken", {"broken": "tenon_broken"}, {"tenon_broken.py": BROKEN}, version="2.5")
    _install_good(install)
    host = fresh_host()

    with pytest.warns(PluginWarning, match="package_that_nobody_installed") as caught:
        host.load()

    assert len(caught) == 1
    failure = _failure(host, "broken")
    assert (failure.stage, failure.distribution, failure.version) == ("import", "tenon-broken", "2.5")
    assert isinstance(failure.error, ModuleNotFoundError)
    assert "tenon_broken.py" in failure.traceback
    assert host.registry.resolve("optimizers", "Good").__name__ == "Good"


def test_all_failures_come_in_one_warning(install, fresh_host):
    install("tenon-one", {"one": "tenon_one"}, {"tenon_one.py": BROKEN})
    install("tenon-two", {"two": "tenon_two"}, {"tenon_two.py": "1 / 0"})

    with pytest.warns(PluginWarning) as caught:
        fresh_host().load()

    assert len(caught) == 1
    assert "'one'" in str(caught[0].message) and "ZeroDivisionError" in str(caught[0].message)


def test_host_stays_usable_where_the_warning_is_an_error(install, fresh_host):
    install("tenon-broken", {"broken": "tenon_broken"}, {"tenon_broken.py": BROKEN})
    _install_good(install)
    host = fresh_host()

    with pytest.raises(PluginWarning):
        host.load()

    host.load()
    assert host.registry.names("optimizers").count("Good") == 1


def test_plugin_that_exits_at_import_does_not_end_the_process(install, fresh_host):
    install("tenon-exit", {"exits": "tenon_exit"}, {"tenon_exit.py": "import sys; sys.exit(3)"})
    _install_good(install)
    host = fresh_host()

    with pytest.warns(PluginWarning, match="SystemExit: 3"):
        host.load()

    assert isinstance(_failure(host, "exits").error, SystemExit)
    assert "Good" in host.registry.names("optimizers")


def test_misspelt_hook_rejects_the_plugin_and_names_the_nearest_hook(install, fresh_host):
    text = """
        from tenon.extend import hookimpl

        @hookimpl
        def tenon_optimisers():
            return {}

        @hookimpl
        def tenon_recipes():
            return {"never": "nowhere:never"}
        """
    install("tenon-typo", {"typo": "tenon_typo"}, {"tenon_typo.py": text})
    host = fresh_host()

    with pytest.warns(PluginWarning, match=r"'tenon_optimisers'\. Did you mean 'tenon_optimizers'\?"):
        host.load()

    assert _failure(host, "typo").stage == "hooks"
    assert "never" not in host.registry.names("recipes")


def test_misspelt_hook_marked_optional_is_accepted(empty_host):
    class Ahead:
        @hookimpl(optionalhook=True)
        def tenon_hook_of_next_year(self): ...

    assert empty_host.register(Ahead(), "ahead").name == "ahead"


def test_hook_without_its_marker_is_an_error_instead_of_silence(install, fresh_host):
    install("tenon-bare", {"bare": "tenon_bare"}, {"tenon_bare.py": "def tenon_optimizers(): return {}"})
    host = fresh_host()

    with pytest.warns(PluginWarning, match="without the @hookimpl marker"):
        host.load()


def test_hook_with_an_unknown_argument_is_rejected_as_a_whole(empty_host):
    class Wrong:
        @hookimpl
        def tenon_report(self, metrics, stepp): ...

    with pytest.raises(PluginError, match="stepp"):
        empty_host.register(Wrong(), "wrong")

    assert empty_host.plugins == ()
    assert empty_host.hook.tenon_report.get_hookimpls() == []


def test_declaring_hook_takes_no_wrapper(empty_host):
    class Wraps:
        @hookimpl(wrapper=True)
        def tenon_optimizers(self):
            return (yield)

    with pytest.raises(PluginError, match="wraps the declaring hook tenon_optimizers"):
        empty_host.register(Wraps(), "wraps")


def test_same_plugin_name_from_two_distributions_names_both(simple, fresh_host):
    simple("tiger", "Tiger", distribution="tenon-tiger")
    simple("tiger", "Leo", distribution="tenon-tiger-two")
    host = fresh_host()

    with pytest.warns(
        PluginWarning, match=r"by 'tiger' \(tenon-tiger 0.1\), so 'tiger' \(tenon-tiger-two 0.1\)"
    ):
        host.load()

    assert "Tiger" in host.registry.names("optimizers") and "Leo" not in host.registry.names("optimizers")


def test_one_of_two_plugins_of_the_same_name_is_disabled_by_its_distribution(simple, fresh_host):
    simple("tiger", "Tiger", distribution="tenon-tiger")
    simple("tiger", "Leo", distribution="tenon-tiger-two")

    names = _loaded(fresh_host(disable_plugins=("tenon_tiger",))).registry.names("optimizers")

    assert "Leo" in names and "Tiger" not in names


def test_disabled_plugin_is_not_imported(install, fresh_host):
    install("tenon-broken", {"broken": "tenon_broken"}, {"tenon_broken.py": BROKEN})

    host = _loaded(fresh_host(disable_plugins=("broken",)))

    assert host.disabled == ("broken",)
    assert not any(failure.name == "broken" for failure in host.failures)
    assert "tenon_broken" not in sys.modules


def test_restriction_loads_only_the_named_plugins(simple, fresh_host):
    simple("tiger", "Tiger")
    simple("other", "Other")

    host = _loaded(fresh_host(plugins=("tiger",)))

    assert [info.name for info in host.plugins] == ["tiger"]
    assert "other" in host.disabled and "tenon_cpu" in host.disabled


def test_restriction_by_distribution_loads_all_its_plugins(simple, fresh_host):
    simple("tiger", "Tiger")

    host = _loaded(fresh_host(plugins=("tenon-platform",)))

    assert all(info.first_party for info in host.plugins)
    assert host.disabled == ("tiger",)


def test_unknown_name_in_a_switch_is_pointed_out(simple, fresh_host):
    simple("tiger", "Tiger")

    with pytest.warns(PluginWarning, match=r"TENON_DISABLE_PLUGINS names 'tigr'.*did you mean 'tiger'"):
        fresh_host(disable_plugins=("tigr",)).load()


@pytest.mark.slow
def test_environment_switches_reach_the_host_of_a_new_process(simple):
    root = simple("tiger", "Tiger")
    code = "from tenon.plugins.registry import names; print(names('optimizers'))"

    def run(**variables: str) -> subprocess.CompletedProcess[str]:
        environ = {"PYTHONPATH": str(root), "PATH": "", **variables}
        return subprocess.run(
            [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
        )

    assert "'Tiger'" in run().stdout
    assert "'Tiger'" not in run(TENON_DISABLE_PLUGINS="tiger").stdout
    assert run(TENON_PLUGINS="tiger").stdout == "['Tiger']\n"
    assert "tenon_optimizers" in run(TENON_TRACE_PLUGINS="1").stderr
    assert "tenon_optimizers" not in run().stderr


def test_plugin_that_fails_to_configure_is_left_out(install, fresh_host):
    text = """
        from tenon.extend import hookimpl

        @hookimpl
        def tenon_configure(config):
            raise ValueError("no licence found")

        @hookimpl
        def tenon_optimizers():
            return {"Tiger": "x:Tiger"}
        """
    install("tenon-tiger", {"tiger": "tenon_tiger"}, {"tenon_tiger.py": text})
    host = fresh_host()

    with pytest.warns(PluginWarning, match="no licence found"):
        host.load()

    failure = _failure(host, "tiger")
    assert failure.stage == "configure"
    assert isinstance(failure.error, PluginHookError)
    assert "Tiger" not in host.registry.names("optimizers")


def test_plugin_registered_late_is_seen_and_unregistered_again(empty_host):
    class Late:
        @hookimpl
        def tenon_optimizers(self):
            return {"Late": Late}

    assert empty_host.registry.names("optimizers") == []

    empty_host.register(Late(), "late")
    assert empty_host.registry.resolve("optimizers", "Late") is Late

    empty_host.unregister("late")
    assert empty_host.registry.names("optimizers") == []


def test_plugin_registered_twice_is_refused(empty_host):
    plugin = type("Plugin", (), {})()
    empty_host.register(plugin, "mine")

    with pytest.raises(PluginError, match="already registered as 'mine'"):
        empty_host.register(plugin, "yours")
    with pytest.raises(PluginError, match="already registered"):
        empty_host.register(type("Other", (), {})(), "mine")


def test_unregistering_what_is_not_there_lists_what_is(empty_host):
    empty_host.register(type("Plugin", (), {})(), "mine")

    with pytest.raises(PluginError, match=r"'yours' is not registered\. Registered: mine"):
        empty_host.unregister("yours")


def test_interrupt_during_loading_is_not_swallowed_and_loading_can_be_repeated(install, fresh_host):
    text = "import builtins\nif not hasattr(builtins, 'tenon_again'):\n    raise KeyboardInterrupt\n"
    install("tenon-slow", {"slow": "tenon_slow"}, {"tenon_slow.py": text})
    host = fresh_host()

    with pytest.raises(KeyboardInterrupt):
        host.load()
    assert host.plugins == ()

    host._points = ()
    host.load()
    assert host.plugins == ()


def test_threads_that_ask_at_once_load_the_plugins_once(install):
    text = """
        import builtins, time
        builtins.tenon_imports = getattr(builtins, "tenon_imports", 0) + 1
        time.sleep(0.05)
        """
    install("tenon-count", {"count": "tenon_count"}, {"tenon_count.py": text})
    seen = []

    with use_host(Host(Config(plugins=("count",)))):
        threads = [threading.Thread(target=lambda: seen.append(len(host().plugins))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    import builtins

    assert builtins.__dict__.pop("tenon_imports") == 1
    assert seen == [1] * 8


def test_plugin_that_uses_the_registry_while_loading_is_told_why_not(install, fresh_host):
    text = """
        from tenon.plugins.registry import resolve
        resolve("optimizers", "NotYet")
        """
    install("tenon-eager", {"eager": "tenon_eager"}, {"tenon_eager.py": text})
    host = fresh_host()

    with pytest.warns(PluginWarning):
        host.load()

    assert "import nothing in plugin.py" in str(_failure(host, "eager").error)


def test_failure_prints_the_cause_of_the_cause(install, fresh_host):
    text = """
        try:
            1 / 0
        except ZeroDivisionError as error:
            raise RuntimeError("outer") from error
        """
    install("tenon-chain", {"chain": "tenon_chain"}, {"tenon_chain.py": text})
    host = fresh_host()
    with pytest.warns(PluginWarning):
        host.load()

    shown = _failure(host, "chain").traceback

    assert "ZeroDivisionError" in shown and "RuntimeError: outer" in shown
    assert shown == "".join(traceback.format_exception(_failure(host, "chain").error))


def _loaded(host: Host) -> Host:
    host.load()
    return host


def _failure(host: Host, name: str) -> loader.PluginFailure:
    return next(failure for failure in host.failures if failure.name == name)


PLAIN = {"tenon_lynx.py": "loaded = True"}


@pytest.mark.parametrize("name", ["tenon-platform", "Tenon_Platform"])
def test_a_plugin_for_another_version_of_tenon_is_left_out(install, fresh_host, name):
    install("tenon-lynx", {"lynx": "tenon_lynx"}, PLAIN, requires=["numpy", f"{name}>=99"])
    host = fresh_host()

    with pytest.warns(PluginWarning, match=r"it requires tenon-platform>=99, and this is .*tenon-lynx"):
        host.load()
    assert "lynx" not in [info.name for info in host.plugins]


def test_requirements_that_hold_or_do_not_apply_are_accepted(install, fresh_host):
    conditional = 'tenon-platform>=99; extra == "new"', 'tenon-platform>=99; python_version < "3"'
    install(
        "tenon-lynx",
        {"lynx": "tenon_lynx"},
        PLAIN,
        requires=["tenon-platform>=0.0.1", *conditional, "other>=99"],
    )

    host = fresh_host()
    host.load()

    assert "lynx" in [info.name for info in host.plugins]
