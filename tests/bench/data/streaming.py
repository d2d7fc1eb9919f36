"""Throughput of tar shards: ``StreamingDataset`` beside plain ``tarfile`` code under PyTorch's loader, on this machine, now.

    python tests/bench/data/streaming.py                     # 12 KB arrays, in process and with two workers
    python tests/bench/data/streaming.py --json found.json --samples 4000 --rounds 3

All read the same shards and make the same batches of ``(float array, label)``, each with its own loader and collation. PyTorch has two
forms of the code that people write: "stream" goes through the archives in order with ``tarfile`` and shuffles in a buffer of 1,000,
which is not a permutation of all samples, and "random" keeps ``tarfile``'s members and reads them by ``extractfile`` in a
permutation of all samples, as tenon does. Files are in the page cache: what is measured is code. The forms take turns; "best" is the
best round of each, and "tenon / random" and "tenon / stream" are ratios of rates (above 1: tenon is faster).

"traffic" counts what an epoch asks of a network whose cache holds a quarter of the data, for each order and ``fetch``: bytes as a multiple of
the data, and requests. Only the order in which threads take their shards changes them from run to run.
"""

import argparse
import json
import os
import random
import tarfile
import tempfile
import time

import numpy as np


def written(folder, samples, shards, side):
    """Write the shards."""
    from tenon.data.streaming import ShardWriter

    draw = np.random.default_rng(0)
    with ShardWriter(f"{folder}/s-%03d.tar", maxcount=-(-samples // shards)) as writer:
        for i in range(samples):
            image = draw.integers(0, 256, (3, side, side), np.uint8)
            writer.write({"__key__": f"{i:07}", "npy": image, "cls": i % 10})
    return writer.paths


def tenon_epoch(paths, workers, batch):
    """An epoch in a shuffled order of all samples; the number of samples."""
    import tenon
    from tenon.data import DataLoader
    from tenon.data.streaming import StreamingDataset

    tenon.manual_seed(0)
    dataset = StreamingDataset(paths, fields=("npy", "cls"))
    return sum(len(y) for _, y in DataLoader(dataset, batch, shuffle=True, num_workers=workers))


def _array(data):
    import io

    return np.load(io.BytesIO(data))


def torch_random(paths, workers, batch):
    """The same with members that ``tarfile`` has found."""
    import torch

    class Members(torch.utils.data.Dataset):
        def __init__(self):
            self.found = []
            self.archives = {}
            for path in paths:
                with tarfile.open(path) as archive:
                    members = archive.getmembers()
                self.found += [(path, *pair) for pair in zip(members[::2], members[1::2], strict=True)]

        def __len__(self):
            return len(self.found)

        def __getitem__(self, index):
            path, image, label = self.found[index]
            archive = self.archives.get((os.getpid(), path))
            if archive is None:
                archive = self.archives[os.getpid(), path] = tarfile.open(path)  # noqa: SIM115 - open until the end
            return _array(archive.extractfile(image).read()), int(archive.extractfile(label).read())

    torch.manual_seed(0)
    loader = torch.utils.data.DataLoader(Members(), batch, shuffle=True, num_workers=workers)
    return sum(len(y) for _, y in loader)


def torch_stream(paths, workers, batch):
    """The same in order of the archives, through a buffer."""
    import torch

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            info = torch.utils.data.get_worker_info()
            own = paths if info is None else paths[info.id :: info.num_workers]
            draw, buffer = random.Random(0), []
            for sample in self._samples(own):
                buffer.append(sample)
                if len(buffer) == 1000:
                    yield buffer.pop(draw.randrange(1000))
            draw.shuffle(buffer)
            yield from buffer

        def _samples(self, own):
            for path in own:
                with tarfile.open(path, "r|") as archive:
                    sample = []
                    for member in archive:
                        sample.append(archive.extractfile(member).read())
                        if len(sample) == 2:
                            yield _array(sample[0]), int(sample[1])
                            sample = []

    loader = torch.utils.data.DataLoader(Stream(), batch, num_workers=workers)
    return sum(len(y) for _, y in loader)


FORMS = {"tenon": tenon_epoch, "random": torch_random, "stream": torch_stream}


def rates(paths, samples, workers, batch, rounds):
    """Samples a second of each form, of the best round."""
    best = dict.fromkeys(FORMS, 0.0)
    for _ in range(rounds):
        for name, form in FORMS.items():
            start = time.perf_counter()
            count = form(paths, workers, batch)
            best[name] = max(best[name], count / (time.perf_counter() - start))
            assert count == samples, (name, count)
    return best


def traffic(folder, paths, batch):
    """Bytes and requests of an epoch by order and ``fetch``, with a cache for a quarter of the data."""
    from tenon.data import DataLoader
    from tenon.data.streaming import ShardSampler, StreamingDataset, locations, write_index
    from tenon.utils.data import DistributedSampler

    for path in paths:
        write_index(path)
    total = sum(map(os.path.getsize, paths))
    counted = [0, 0]
    read = locations.RemoteReader.read

    def counting(reader, ranges):
        parts = read(reader, ranges)
        counted[0] += sum(map(len, parts))
        counted[1] += len(parts)
        return parts

    locations.RemoteReader.read = counting
    rows = []
    try:
        for order in ("uniform", "groups"):
            for fetch in ("sample", "shard"):
                dataset = StreamingDataset(
                    [f"file://{path}" for path in paths], fields=("npy", "cls"), fetch=fetch,
                    cache_dir=f"{folder}/cache-{order}-{fetch}", cache_size=total // 4 + 1,
                )  # fmt: skip
                several = max(len(paths) // 8, 1)
                grouped = ShardSampler(dataset, 1, 0, shards_at_once=several)
                sampler = grouped if order == "groups" else DistributedSampler(dataset, 1, 0)
                counted[:] = 0, 0
                sum(len(y) for _, y in DataLoader(dataset, batch, sampler=sampler))
                rows.append(
                    {"order": order, "fetch": fetch, "bytes": counted[0] / total, "requests": counted[1]}
                )
    finally:
        locations.RemoteReader.read = read
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=8000)
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 2])
    parser.add_argument("--json")
    options = parser.parse_args()
    found = {"results": [], "traffic": []}
    with tempfile.TemporaryDirectory() as folder:
        paths = written(folder, options.samples, options.shards, options.side)
        sizes = os.path.getsize(paths[0]) * len(paths) / options.samples / 1000
        print(
            f"{options.samples:,} samples of {sizes:.1f} kB in {len(paths)} shards, batches of {options.batch}"
        )
        for workers in options.workers:
            best = rates(paths, options.samples, workers, options.batch, options.rounds)
            found["results"].append({"workers": workers, **best})
            print(
                f"{workers} workers: "
                + ", ".join(f"{name} {rate:,.0f}/s" for name, rate in best.items())
                + f"; tenon / random {best['tenon'] / best['random']:.2f}, tenon / stream {best['tenon'] / best['stream']:.2f}"
            )
        found["traffic"] = traffic(folder, paths, options.batch)
        for row in found["traffic"]:
            print(
                f"traffic, {row['order']}, fetch={row['fetch']}: {row['bytes']:.2f} x the data, {row['requests']:,} requests"
            )
    if options.json:
        with open(options.json, "w") as file:
            json.dump(found, file)


if __name__ == "__main__":
    main()
