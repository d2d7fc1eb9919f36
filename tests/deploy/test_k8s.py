"""The manifests for Kubernetes: valid for the mpi-operator, and consistent with each other and with the image."""

import copy
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")
jsonschema = pytest.importorskip("jsonschema")

FOLDER = Path(__file__).parents[2] / "deploy" / "k8s"
JOBS = sorted(FOLDER.glob("mpijob*.yaml"))
SCHEMA = yaml.safe_load(Path(__file__).with_name("mpijob_schema.yaml").read_text())


def refusals(job):
    """The errors of the operator for ``job``: the paths of the invalid fields."""
    errors = jsonschema.Draft202012Validator(SCHEMA).iter_errors(job)
    return [".".join(map(str, error.absolute_path)) for error in errors]


@pytest.fixture(params=JOBS, ids=lambda path: path.stem)
def job(request):
    return yaml.safe_load(request.param.read_text())


def pods(job):
    replicas = job["spec"]["mpiReplicaSpecs"]
    return [replicas[name]["template"]["spec"] for name in ("Launcher", "Worker")]


def settings(name):
    """The settings of one of the ssh configurations."""
    lines = (FOLDER / name).read_text().splitlines()
    return dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))


def test_there_is_a_job_for_processors_and_one_for_gpus():
    assert [path.name for path in JOBS] == ["mpijob-cuda.yaml", "mpijob.yaml"]


def test_the_operator_takes_the_job(job):
    assert refusals(job) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.slotsPerWorker", "2"),
        ("spec.mpiImplementation", "mpich"),
        ("spec.launcherCreationPolicy", "Later"),
        ("spec.sshAuthMountPath", ""),
        ("spec.runPolicy.cleanPodPolicy", "Sometimes"),
        ("spec.mpiReplicaSpecs.Launcher.replicas", 2),
        ("spec.mpiReplicaSpecs.Launcher.restartPolicy", "Always"),
        ("spec.mpiReplicaSpecs.Worker.replicas", 0),
        ("metadata.name", "Digits_1"),
    ],
)
def test_the_schema_refuses_what_the_operator_refuses(path, value):
    job = yaml.safe_load((FOLDER / "mpijob.yaml").read_text())
    *folders, last = path.split(".")
    place = job
    for name in folders:
        place = place[name]
    place[last] = value

    assert refusals(job) == [path]


def test_the_schema_refuses_a_field_that_is_misspelt_at_any_depth():
    job = yaml.safe_load((FOLDER / "mpijob.yaml").read_text())
    for path in (
        (),
        ("spec",),
        ("spec", "runPolicy"),
        ("spec", "mpiReplicaSpecs", "Worker", "template", "spec"),
    ):
        spoiled = copy.deepcopy(job)
        place = spoiled
        for name in path:
            place = place[name]
        place["slotsPerWorkers"] = 1

        assert refusals(spoiled) == [".".join(path)]


def test_as_many_processes_are_started_as_the_workers_have_slots(job):
    command = pods(job)[0]["containers"][0]["command"]
    workers = job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"]

    assert command[:2] == ["mpirun", "-n"]
    assert int(command[2]) == workers * job["spec"]["slotsPerWorker"]


def test_processes_share_the_cores_of_their_worker(job):
    launcher, worker = (pod["containers"][0] for pod in pods(job))
    threads = {entry["name"]: entry["value"] for entry in launcher["env"]}["OMP_NUM_THREADS"]

    assert int(threads) * job["spec"]["slotsPerWorker"] == int(worker["resources"]["limits"]["cpu"])


def test_a_job_that_is_started_again_goes_on_in_its_folder_which_all_pods_share(job):
    command = pods(job)[0]["containers"][0]["command"]
    launcher, worker = pods(job)

    assert job["spec"]["mpiReplicaSpecs"]["Launcher"]["restartPolicy"] == "OnFailure"
    assert command[command.index("--run") + 1] == job["metadata"]["name"]
    assert launcher["containers"][0]["workingDir"] == "/runs"
    for pod in (launcher, worker):
        mounts = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
        claims = {
            v["name"]: v["persistentVolumeClaim"]["claimName"]
            for v in pod["volumes"]
            if len(v) == 2 and "persistentVolumeClaim" in v
        }
        claim = yaml.safe_load((FOLDER / "runs.yaml").read_text())
        assert claims[mounts["/runs"]] == claim["metadata"]["name"]
        assert claim["spec"]["accessModes"] == ["ReadWriteMany"]


def test_the_pods_run_the_image_s_user_and_its_ssh(job):
    image = (FOLDER / "ssh.Dockerfile").read_text()
    client, server = settings("ssh_config"), settings("sshd_config")
    worker = pods(job)[1]["containers"][0]
    keys = job["spec"]["sshAuthMountPath"]

    for pod in pods(job):
        assert f"--uid {pod['securityContext']['runAsUser']} tenon" in image
    assert worker["command"] == ["/usr/sbin/sshd", "-De", "-f", "/etc/tenon/sshd_config"]
    assert "COPY deploy/k8s/sshd_config /etc/tenon/sshd_config" in image
    assert f"COPY deploy/k8s/leave.sh {worker['lifecycle']['preStop']['exec']['command'][0]}" in image
    assert client["Port"] == server["Port"] == str(worker["readinessProbe"]["tcpSocket"]["port"])
    assert server["HostKey"] == f"{keys}/id_rsa" and server["AuthorizedKeysFile"] == f"{keys}/authorized_keys"
    assert client["IdentityFile"] == f"{keys}/id_rsa"
    assert client["KnownHostsCommand"].endswith(f"{keys}/id_rsa.pub")


def test_only_the_job_for_gpus_asks_for_them(job):
    command = pods(job)[0]["containers"][0]["command"]
    limits = pods(job)[1]["containers"][0]["resources"]["limits"]

    assert (
        ("device=cuda" in command)
        == (limits.get("nvidia.com/gpu") == 1)
        == ("cuda" in job["metadata"]["name"])
    )
    if "nvidia.com/gpu" in limits:
        assert job["spec"]["slotsPerWorker"] == 1  # Each process takes the first GPU it sees.
