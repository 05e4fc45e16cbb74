"""Data-parallel training over N processes with numpy and sockets: a real ring all-reduce.

Every process trains the same small network on its own part of the data; after each step their
gradients are averaged around a ring, so that all stay equal. Nothing but numpy is needed.

From the environment: MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE (as for torch.distributed);
TERRACE_METRICS (a file that gets one JSON line per report), TERRACE_OUTPUT (a folder that gets
model.npz) and TERRACE_JOB_DIR (a folder that outlives a restart and gets the checkpoint).

    python train.py --seconds 30
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
from pathlib import Path

import numpy as np

FEATURES, CLASSES, SAMPLES = 32, 10, 20_000
CONNECT_SECONDS = 300.0
STOPPED_BY_SIGNAL = 143


class Ring:
    """The processes in a ring: each sends to the next one and receives from the one before."""

    def __init__(self, rank: int, size: int, address: tuple[str, int]) -> None:
        self.rank, self.size = rank, size
        if size == 1:
            return
        with socket.create_server(("", 0), backlog=size) as listener:
            port = listener.getsockname()[1]
            addresses = _meet(rank, size, address, port)
            self.to_next = _connect(addresses[(rank + 1) % size])
            self.from_previous, _ = listener.accept()
        for one in (self.to_next, self.from_previous):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _exchange(self, sent: np.ndarray) -> np.ndarray:
        """Send to the next process and receive as much from the previous one, both at once."""
        received = np.empty_like(sent)
        # A thread of its own sends: with large arrays all processes would wait for one another.
        sender = threading.Thread(target=self.to_next.sendall, args=(sent.tobytes(),))
        sender.start()
        _receive_into(self.from_previous, memoryview(received).cast("B"))
        sender.join()
        return received

    def average(self, values: np.ndarray) -> np.ndarray:
        """Return the mean of the arrays of all processes; every one gets the same result.

        1. Cut the array into as many chunks as there are processes.
        2. size - 1 times: pass a chunk on and add the one that comes; each then owns one sum.
        3. size - 1 times: pass the finished chunks around.
        """
        if self.size == 1:
            return values
        length = -(-values.size // self.size)
        padded = np.zeros(length * self.size)
        padded[: values.size] = values
        chunks = padded.reshape(self.size, length)
        for step in range(self.size - 1):
            sent, got = (self.rank - step) % self.size, (self.rank - step - 1) % self.size
            chunks[got] += self._exchange(chunks[sent].copy())
        for step in range(self.size - 1):
            sent, got = (self.rank + 1 - step) % self.size, (self.rank - step) % self.size
            chunks[got] = self._exchange(chunks[sent].copy())
        return padded[: values.size] / self.size


def _meet(rank: int, size: int, master: tuple[str, int], port: int) -> list[tuple[str, int]]:
    """Tell the master where this process listens; return where all processes listen, by rank."""
    if rank == 0:
        addresses: list[tuple[str, int]] = [("", 0)] * size
        guests: list[tuple[int, socket.socket]] = []
        with socket.create_server(("", master[1]), backlog=size) as desk:
            while len(guests) < size - 1:
                guest, (host, *_) = desk.accept()
                its_rank, its_port = struct.unpack("!II", _receive(guest, 8))
                # Who comes over loopback is on the master's machine and is reached there.
                addresses[its_rank] = (master[0] if host.startswith("127.") else host, its_port)
                guests.append((its_rank, guest))
        addresses[0] = (master[0], port)
        text = json.dumps(addresses).encode()
        for _, guest in guests:
            guest.sendall(struct.pack("!I", len(text)) + text)
            guest.close()
        return addresses
    with _connect(master) as desk:
        desk.sendall(struct.pack("!II", rank, port))
        (length,) = struct.unpack("!I", _receive(desk, 4))
        return [(host, number) for host, number in json.loads(_receive(desk, length))]


def _connect(address: tuple[str, int]) -> socket.socket:
    """Connect, waiting for the other side to be there."""
    deadline = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            connection = socket.create_connection(address, timeout=10)
        except OSError as error:
            if time.monotonic() > deadline:
                sys.exit(f"no answer from {address[0]}:{address[1]} for 5 minutes: {error}")
            time.sleep(0.2)
        else:
            connection.settimeout(CONNECT_SECONDS)
            return connection


def _receive(connection: socket.socket, count: int) -> bytes:
    buffer = bytearray(count)
    _receive_into(connection, memoryview(buffer))
    return bytes(buffer)


def _receive_into(connection: socket.socket, view: memoryview) -> None:
    while view:
        count = connection.recv_into(view)
        if count == 0:
            sys.exit("another process of the ring is gone")
        view = view[count:]


def make_data(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Make samples of ten classes, each a cloud bent around a centre; learnable, not trivial."""
    dice = np.random.default_rng(seed)
    labels = dice.integers(0, CLASSES, SAMPLES)
    centres = dice.normal(size=(CLASSES, FEATURES))
    points = centres[labels] + 1.6 * dice.normal(size=(SAMPLES, FEATURES))
    points[:, ::2] += 0.5 * np.sin(2.0 * points[:, 1::2])
    return points, labels


class Network:
    """Two layers with one flat array of parameters, so that averaging is one operation."""

    def __init__(self, hidden: int, seed: int) -> None:
        dice = np.random.default_rng(seed)
        self.shapes = [(FEATURES, hidden), (hidden,), (hidden, CLASSES), (CLASSES,)]
        first, bias, second, bias_out = self.shapes
        parts = [
            dice.normal(size=first) / np.sqrt(first[0]),
            np.zeros(bias),
            dice.normal(size=second) / np.sqrt(second[0]),
            np.zeros(bias_out),
        ]
        self.parameters = np.concatenate([part.ravel() for part in parts])
        self.momentum = np.zeros_like(self.parameters)

    def _parts(self, flat: np.ndarray) -> list[np.ndarray]:
        parts, start = [], 0
        for shape in self.shapes:
            size = int(np.prod(shape))
            parts.append(flat[start : start + size].reshape(shape))
            start += size
        return parts

    def predict(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the hidden layer and the probabilities of the classes."""
        first, bias, second, bias_out = self._parts(self.parameters)
        hidden = np.tanh(points @ first + bias)
        scores = hidden @ second + bias_out
        scores -= scores.max(axis=1, keepdims=True)
        exponentials = np.exp(scores)
        return hidden, exponentials / exponentials.sum(axis=1, keepdims=True)

    def gradient(self, points: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, float]:
        """Return the gradient as one flat array, and the loss."""
        _, _, second, _ = self._parts(self.parameters)
        hidden, probabilities = self.predict(points)
        rows = np.arange(len(labels))
        loss = float(-np.log(probabilities[rows, labels] + 1e-12).mean())
        errors = probabilities.copy()
        errors[rows, labels] -= 1.0
        errors /= len(labels)
        behind = errors @ second.T * (1.0 - hidden**2)
        parts = [points.T @ behind, behind.sum(0), hidden.T @ errors, errors.sum(0)]
        return np.concatenate([part.ravel() for part in parts]), loss

    def step(self, gradient: np.ndarray, rate: float) -> None:
        """Move the parameters down the gradient, with momentum."""
        self.momentum = 0.9 * self.momentum + gradient
        self.parameters -= rate * self.momentum

    def accuracy(self, points: np.ndarray, labels: np.ndarray) -> float:
        """Return the share of samples that are classified rightly."""
        return float((self.predict(points)[1].argmax(axis=1) == labels).mean())


def save(path: Path, network: Network, step: int) -> None:
    """Write a checkpoint so that a half-written one is never read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new.npz")
    np.savez(new, parameters=network.parameters, momentum=network.momentum, step=step)
    new.replace(path)


def restore(path: Path, network: Network) -> int:
    """Read a checkpoint if there is one; return the step to go on from."""
    if not path.exists():
        return 0
    with np.load(path) as saved:
        if saved["parameters"].shape != network.parameters.shape:
            print(f"{path.name} is of another network and is left alone", flush=True)
            return 0
        network.parameters = saved["parameters"]
        network.momentum = saved["momentum"]
        return int(saved["step"])


def report(path: str | None, **values: float) -> None:
    """Append one JSON line to the metrics file, if there is one."""
    if path:
        with Path(path).open("a", encoding="utf-8") as metrics:
            metrics.write(json.dumps(values) + "\n")


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--steps", type=int, default=100_000, help="stop after so many steps")
    parser.add_argument("--seconds", type=float, default=30.0, help="stop after about this time")
    parser.add_argument("--hidden", type=int, default=128, help="size of the hidden layer")
    parser.add_argument("--batch", type=int, default=128, help="samples per process and step")
    parser.add_argument("--rate", type=float, default=0.02, help="learning rate")
    parser.add_argument("--pause", type=float, default=0.02, help="rest between steps, in seconds")
    parser.add_argument("--report-every", type=int, default=20, help="steps between two reports")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fail-at", type=int, help="end with exit code 1 at this step, once")
    return parser.parse_args()


def agree_on_start(ring: Ring, network: Network, checkpoint: Path) -> int:
    """Give every process the state of rank 0's checkpoint; return the step to go on from.

    Only rank 0 reads it: the folder may lie on its machine alone. The others have zeros, and the
    average times the number of processes is what rank 0 has.
    """
    step = restore(checkpoint, network) if ring.rank == 0 else 0
    state = np.concatenate([network.parameters, network.momentum, [step]])
    state = ring.average(state if ring.rank == 0 else np.zeros_like(state)) * ring.size
    count = network.parameters.size
    network.parameters, network.momentum = state[:count].copy(), state[count : 2 * count].copy()
    step = round(float(state[-1]))
    print(
        f"rank {ring.rank}: {'going on at' if step else 'beginning with'} step {step}", flush=True
    )
    return step


def fails_once(arguments: argparse.Namespace, step: int, ring: Ring, folder: Path) -> bool:
    """Whether this process was asked to fail now; a file remembers that it did."""
    mark = folder / "has-failed"
    if arguments.fail_at != step or ring.rank != ring.size - 1 or mark.exists():
        return False
    mark.touch()
    print(f"rank {ring.rank}: failing at step {step}, as asked", flush=True)
    return True


def main() -> int:
    """Train until the time or the steps are over."""
    arguments = read_arguments()
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    master = os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "23456"))
    folder = Path(os.environ.get("TERRACE_JOB_DIR", "."))
    is_told_to_stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_told_to_stop.set())

    print(f"rank {rank} of {size}: meeting at {master[0]}:{master[1]}", flush=True)
    ring = Ring(rank, size, master)
    network = Network(arguments.hidden, arguments.seed)
    step = agree_on_start(ring, network, folder / "checkpoint.npz")
    return train(arguments, ring, network, step, is_told_to_stop, folder)


def train(
    arguments: argparse.Namespace,
    ring: Ring,
    network: Network,
    step: int,
    is_told_to_stop: threading.Event,
    folder: Path,
) -> int:
    """Do the steps; return the exit code."""
    points, labels = make_data(arguments.seed)
    held_out = slice(0, SAMPLES // 10)
    mine = np.arange(SAMPLES // 10 + ring.rank, SAMPLES, ring.size)
    dice = np.random.default_rng([arguments.seed, ring.rank, step])
    started = time.monotonic()
    is_over = False
    while step < arguments.steps and not is_over:
        if fails_once(arguments, step, ring, folder):
            return 1
        chosen = dice.choice(mine, arguments.batch)
        gradient, loss = network.gradient(points[chosen], labels[chosen])
        # What all must agree on travels with the gradient: the loss, and whether to stop.
        has_had_enough = ring.rank == 0 and time.monotonic() - started > arguments.seconds
        wish = float(is_told_to_stop.is_set() or has_had_enough)
        averaged = ring.average(np.concatenate([gradient, [loss, wish]]))
        network.step(averaged[:-2], arguments.rate)
        is_over = bool(averaged[-1] > 0)
        if ring.rank == 0 and (step % arguments.report_every == 0 or is_over):
            accuracy = network.accuracy(points[held_out], labels[held_out])
            loss = float(averaged[-2])
            print(f"step {step:5d}  loss {loss:.4f}  accuracy {accuracy:.4f}", flush=True)
            report(os.environ.get("TERRACE_METRICS"), step=step, loss=loss, accuracy=accuracy)
            save(folder / "checkpoint.npz", network, step + 1)
        step += 1
        time.sleep(arguments.pause)
    if is_told_to_stop.is_set():
        print(f"rank {ring.rank}: told to stop at step {step}", flush=True)
        return STOPPED_BY_SIGNAL
    if ring.rank == 0:
        output = Path(os.environ.get("TERRACE_OUTPUT", "."))
        output.mkdir(parents=True, exist_ok=True)
        np.savez(output / "model.npz", parameters=network.parameters, hidden=arguments.hidden)
        print(f"done after {step} steps: model.npz is in the output folder", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
