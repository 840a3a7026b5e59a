"""Train the convolutional network that reads distorted digits as numbers.

    python -m studies.experiments.deutschmann2024.training.mnist

Stages of 3 × 3 convolutions, each stage followed by pooling, a hidden layer of 256 units, one
output; every hidden layer is followed by batch normalisation and a rectifier. The figure that shows
the paper's network is not in its source, so the numbers of stages, convolutions and channels are
ours. Images are distorted anew each time they are used, in the training and in the prediction.
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import torch

from studies.experiments.deutschmann2024 import artefact
from studies.experiments.deutschmann2024.config import SEED, MnistTraining
from studies.experiments.deutschmann2024.training import running
from studies.experiments.deutschmann2024.training.distortions import distort


def build(settings: MnistTraining) -> Any:
    """Network to the hidden linear layer, whose outputs are the embedding, and what follows it."""
    layers: list[Any] = []
    n_in, side = 1, 28
    for n_out in settings.channels:
        for _ in range(settings.convolutions):
            layers += _convolution(n_in, n_out)
            n_in = n_out
        layers.append(torch.nn.MaxPool2d(2))
        side //= 2
    linear = torch.nn.Linear(n_in * side * side, settings.hidden)
    body = torch.nn.Sequential(*layers, torch.nn.Flatten(), linear)
    head = torch.nn.Sequential(
        torch.nn.BatchNorm1d(settings.hidden), torch.nn.ReLU(), torch.nn.Linear(settings.hidden, 1)
    )
    return torch.nn.ModuleDict({"body": body, "head": head})


def _convolution(n_in: int, n_out: int) -> list[Any]:
    return [
        torch.nn.Conv2d(n_in, n_out, 3, padding=1),
        torch.nn.BatchNorm2d(n_out),
        torch.nn.ReLU(),
    ]


def predict(model: Any, images: Any, settings: MnistTraining, generator: Any) -> tuple[Any, Any]:
    """Predictions and embeddings of one distorted copy of each image."""
    model.eval()
    parts = []
    with torch.inference_mode():
        for batch in images.split(1000):
            embedding = model["body"](distort(batch.float() / 255, settings, generator))
            outputs = (model["head"](embedding)[:, 0], embedding)
            parts.append([part.cpu().numpy() for part in outputs])
    y_pred, Z = (np.concatenate(column) for column in zip(*parts, strict=True))
    return y_pred, Z


def main() -> None:
    options = running.arguments(__doc__).parse_args()
    settings, started, device = MnistTraining(), time.monotonic(), running.device()
    with np.load(options.inputs / "mnist.npz") as stored:
        data = dict(stored)
    if options.quick:
        data = {name: values[:200] for name, values in data.items()}
    running.seed(SEED)
    generator = torch.Generator(device=device).manual_seed(SEED)
    images = torch.from_numpy(data["x_train"]).to(device)[:, None]
    y = torch.from_numpy(data["y_train"]).float().to(device)

    model = build(settings).to(device)
    optimiser = torch.optim.Adam(
        model.parameters(), lr=settings.learning_rate, fused=device == "cuda"
    )
    epochs = 1 if options.quick else settings.epochs
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    for epoch in range(epochs):
        model.train()
        total = torch.zeros((), device=device)
        order = torch.randperm(len(y), generator=generator, device=device)
        for rows in order.split(settings.batch):
            distorted = distort(images[rows].float() / 255, settings, generator)
            y_pred = model["head"](model["body"](distorted))[:, 0]
            loss = torch.nn.functional.mse_loss(y_pred, y[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += loss.detach() * len(rows)
        decay.step()
        running.say("mnist", epoch, epochs, float(total) / len(y), started)

    kept = np.random.default_rng(SEED).permutation(len(y))[: settings.training_rows_kept]
    held_out = torch.from_numpy(data["x_test"]).to(device)[:, None]
    parts = []
    for pixels, labels, rows in (
        (held_out, data["y_test"], np.arange(len(held_out))),
        (images[torch.from_numpy(kept).to(device)], data["y_train"][kept], kept),
    ):
        y_pred, Z = predict(model, pixels, settings, generator)
        parts.append(artefact.Rows(y_pred, Z, labels, rows))
    path = options.out / "mnist.npz"
    note = running.note(settings, started, epochs)
    artefact.save(path, *parts, dimensions=settings.embedding_dimensions, note=note)
    print(json.dumps(artefact.load(path).note))


if __name__ == "__main__":
    main()
