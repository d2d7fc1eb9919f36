"""The default device: of each thread, by contexts inside of one another."""

import threading

import tenon as torch


def test_default_device_is_of_each_thread():
    inside, outside = threading.Barrier(2), []
    meta = torch.device("meta")

    def work(device):
        with device:
            inside.wait()
            outside.append((device.type, torch.empty(1).device.type))
            inside.wait()
        outside.append(("left", torch.get_default_device().type))

    threads = [threading.Thread(target=work, args=(d,)) for d in (meta, torch.device("cpu"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(outside) == [("cpu", "cpu"), ("left", "cpu"), ("left", "cpu"), ("meta", "meta")]


def test_contexts_of_one_device_inside_of_another():
    meta = torch.device("meta")

    with meta:
        with torch.device("cpu"), meta:
            assert torch.empty(1).is_meta
        assert torch.empty(1).is_meta
    assert not torch.empty(1).is_meta
