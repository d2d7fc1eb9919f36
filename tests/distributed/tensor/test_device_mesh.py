"""DeviceMesh: shapes, coordinates, groups, slices, and what is refused."""

import numpy as np
import pytest

import tenon as torch
from tenon.distributed import DeviceMesh, init_device_mesh
from tenon.distributed.communication.threaded import run_ranks
from tenon.errors import ArgumentError, CommunicatorError


def test_a_grid_of_named_dimensions():
    def work(communicator):
        mesh = init_device_mesh("cpu", (2, 3), mesh_dim_names=("data", "model"))
        assert mesh.shape == (2, 3) and mesh.ndim == 2 and mesh.size() == 6 and mesh.size(1) == 3
        assert mesh.mesh.tolist() == [[0, 1, 2], [3, 4, 5]] and mesh.device_type == "cpu"
        assert mesh.get_rank() == communicator.rank
        rows, columns = mesh.get_all_groups()
        assert mesh.get_group("data") is rows and mesh.get_group(-1) is columns
        return mesh.get_coordinate(), mesh.get_local_rank("model"), rows.ranks, columns.ranks

    results = run_ranks(6, work)
    assert results[4] == ((1, 1), 1, (1, 4), (3, 4, 5))
    assert [coordinate for coordinate, *_ in results] == [(i // 3, i % 3) for i in range(6)]


def test_slices_share_the_groups():
    def work(communicator):
        mesh = init_device_mesh("cpu", (2, 1, 2), mesh_dim_names=("a", "b", "c"))
        part, pair = mesh["c"], mesh["a", "c"]
        assert mesh["a", "b", "c"] is mesh and part.get_group() is mesh.get_group("c")
        assert pair.shape == (2, 2) and pair.mesh_dim_names == ("a", "c")
        with pytest.raises(KeyError, match="'x'"):
            mesh["x"]
        with pytest.raises(KeyError, match="ascending order"):
            mesh["c", "a"]
        with pytest.raises(KeyError, match="Mesh dimension 'x' does not exist"):
            mesh.get_group("x")
        return part.mesh.tolist(), part.get_local_rank()

    assert run_ranks(4, work) == [([0, 1], 0), ([0, 1], 1), ([2, 3], 0), ([2, 3], 1)]


def test_flatten_joins_dimensions():
    def work(communicator):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
        flat, part = mesh["a", "b"]._flatten("all"), mesh["a"]
        assert mesh["all"] is flat and flat.mesh_dim_names == ("all",)
        assert mesh["a", "b"]._flatten("all") is flat and part._flatten() is part
        for parts, name in [("a", "all"), (("a", "b"), "b")]:
            with pytest.raises(ValueError, match="created before"):
                mesh[parts]._flatten(name)
        total = flat.get_group().all_reduce(np.array([communicator.rank])).wait()
        return flat.mesh.tolist(), int(total[0])

    assert run_ranks(4, work) == [([0, 1, 2, 3], 6)] * 4


def test_slices_contain_flattened_dimensions():
    def work(communicator):
        mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp", "cp", "tp"))
        flat = mesh["dp", "cp"]._flatten()
        both = mesh["dp_cp", "tp"]
        assert mesh["dp_cp"] is flat and both.shape == (4, 2) and both.get_group("dp_cp") is flat.get_group()
        assert mesh.get_group("dp_cp") is flat.get_group()
        with pytest.raises(ArgumentError, match="overlapping"):
            mesh["dp_cp", "dp"]
        return flat.mesh.tolist(), both.get_coordinate()

    results = run_ranks(8, work)
    assert results[5] == ([1, 3, 5, 7], (2, 1)) and results[2][0] == [0, 2, 4, 6]


def test_a_mesh_of_some_ranks():
    def work(communicator):
        mesh = DeviceMesh("cpu", [2, 0])
        if communicator.rank == 1:
            assert mesh.get_coordinate() is None
            with pytest.raises(CommunicatorError, match="rank 1 is not in the mesh"):
                mesh.get_group()
            return None
        return mesh.get_local_rank(), mesh.get_group().ranks

    assert run_ranks(3, work) == [(1, (2, 0)), None, (0, (2, 0))]


def test_from_group():
    def work(communicator):
        mesh = DeviceMesh.from_group(communicator, "cpu", mesh_dim_names=("data",))
        grid = init_device_mesh("cpu", (2, 2))
        again = DeviceMesh.from_group(grid.get_all_groups(), "cpu", [[0, 1], [2, 3]])
        assert again == grid and hash(again) == hash(grid)
        for groups, ranks, message in [
            ([communicator], [[0, 1], [2, 3]], "1 groups for a mesh of 2"),
            ([], [0], "at least one ProcessGroup"),
            (grid.get_all_groups(), None, "Must pass mesh"),
            (communicator, [0, 1], "Invalid mesh"),
            (grid.get_all_groups(), [[0, 2], [1, 3]], "Invalid mesh"),
        ]:
            with pytest.raises(ArgumentError, match=message):
                DeviceMesh.from_group(groups, "cpu", ranks)
        return mesh.get_group() is communicator and mesh.shape == (4,)

    assert run_ranks(4, work) == [True] * 4


def test_equality_and_text():
    one = init_device_mesh("cpu", (1,), mesh_dim_names=("a",))
    assert one == init_device_mesh("cpu", (1,), mesh_dim_names=("a",)) and one != init_device_mesh(
        "cpu", (1,)
    )
    assert repr(one) == "DeviceMesh((a=1), device: 'cpu', ranks: [0])"


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: init_device_mesh("cpu", (2, 3)), "6 places, but the job has 1 ranks"),
        (lambda: init_device_mesh("cpu", (0,)), "positive sizes"),
        (lambda: init_device_mesh("cpu", (True,)), "positive sizes"),
        (lambda: init_device_mesh("cpu", (1.0,)), "positive sizes"),
        (lambda: init_device_mesh("cuda:0", (1,)), "Device type with index"),
        (lambda: init_device_mesh("cpu", (1,), mesh_dim_names=("a", "b")), "should have same length"),
        (lambda: init_device_mesh("cpu", (1, 1), mesh_dim_names=("a", "a")), "must be unique"),
        (lambda: DeviceMesh("cpu", [0, 0]), "different ranks from 0 to 0"),
        (lambda: DeviceMesh("cpu", [1]), "different ranks from 0 to 0"),
        (lambda: DeviceMesh("cpu", [0.5]), "array of ranks"),
        (lambda: DeviceMesh("cpu", []), "array of ranks"),
        (lambda: init_device_mesh("cpu", (1,))["a"], "without mesh_dim_names"),
        (lambda: init_device_mesh("cpu", (1, 1)).get_group(), "needs to be specified"),
        (lambda: init_device_mesh("cpu", (1, 1)).get_group(2), "have 2 dimensions"),
    ],
)
def test_invalid_arguments(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()


def test_the_mesh_of_a_with_block_is_the_default():
    from tenon.distributed.tensor import distribute_tensor

    with init_device_mesh("cpu", (1, 1), mesh_dim_names=("a", "b")) as mesh:
        assert distribute_tensor(torch.ones(2)).device_mesh == mesh
    assert distribute_tensor(torch.ones(2)).device_mesh.ndim == 1
