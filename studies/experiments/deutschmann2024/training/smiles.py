"""Fine-tune a SMILES transformer on solubility or clearance.

    python -m studies.experiments.deutschmann2024.training.smiles solubility

The head is that of the paper's model class, a dense layer, tanh and a linear output on the first
token; the dense layer's output is the embedding. Targets are standardised for the optimiser unless
``--raw-targets`` is given: the paper does not say, and at its learning rate 1,300 steps cannot
carry raw predictions to clearances of 150.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModel

from studies.experiments.deutschmann2024 import artefact
from studies.experiments.deutschmann2024.config import SEED, SmilesTraining
from studies.experiments.deutschmann2024.training import running


def build(encoder_folder: Path) -> Any:
    """The pre-trained encoder under a fresh head."""
    encoder = AutoModel.from_pretrained(encoder_folder, add_pooling_layer=False).float()
    width = encoder.config.hidden_size
    head = {"dense": torch.nn.Linear(width, width), "out": torch.nn.Linear(width, 1)}
    for layer in head.values():
        torch.nn.init.normal_(layer.weight, std=encoder.config.initializer_range)
        torch.nn.init.zeros_(layer.bias)
    head["dropout"] = torch.nn.Dropout(encoder.config.hidden_dropout_prob)
    return torch.nn.ModuleDict({"encoder": encoder, **head})


def forward(model: Any, tokens: Any, padding: int) -> tuple[Any, Any]:
    """Predictions (m,) and embeddings (m, width)."""
    states = model["encoder"](input_ids=tokens, attention_mask=(tokens != padding).long())
    embedding = model["dense"](model["dropout"](states.last_hidden_state[:, 0]))
    return model["out"](model["dropout"](torch.tanh(embedding)))[:, 0], embedding


def batches(lengths: Any, size: int, rng: np.random.Generator) -> list[Any]:
    """Random batches whose rows have similar lengths, so that little is spent on padding."""
    order = rng.permutation(len(lengths))
    pools = [order[start : start + 16 * size] for start in range(0, len(order), 16 * size)]
    order = np.concatenate([pool[np.argsort(lengths[pool], kind="stable")] for pool in pools])
    cut = [order[start : start + size] for start in range(0, len(order), size)]
    return [cut[i] for i in rng.permutation(len(cut))]


def predict(model: Any, tokens: Any, lengths: Any, padding: int) -> tuple[Any, Any]:
    """Predictions and embeddings of all rows, without dropout."""
    model.eval()
    parts = []
    with torch.inference_mode():
        order = np.argsort(lengths, kind="stable")
        for start in range(0, len(order), 256):
            rows = order[start : start + 256]
            outputs = forward(model, tokens[rows, : lengths[rows].max()], padding)
            parts.append([part.float().cpu().numpy() for part in outputs])
    back = np.argsort(order, kind="stable")
    y_pred, embedding = (np.concatenate(column)[back] for column in zip(*parts, strict=True))
    return y_pred, embedding


def main() -> None:
    parser = running.arguments(__doc__)
    parser.add_argument("task", choices=("solubility", "clearance"))
    parser.add_argument("--raw-targets", action="store_true")
    options = parser.parse_args()
    settings, started, device = SmilesTraining(), time.monotonic(), running.device()
    with np.load(options.inputs / f"{options.task}.npz") as stored:
        data = dict(stored)
    if options.quick:
        data["train"], data["held_out"] = data["train"][:80], data["held_out"][:80]
    train, lengths, padding = data["train"], data["lengths"], int(data["padding"])
    running.seed(SEED)
    rng = np.random.default_rng(SEED)
    tokens = torch.from_numpy(data["tokens"].astype(np.int64)).to(device)
    centre, spread = data["y"][train].mean(), data["y"][train].std()
    if options.raw_targets:
        centre, spread = 0.0, 1.0
    y = torch.from_numpy((data["y"] - centre) / spread).float().to(device)

    model = build(options.inputs / "smiles_encoder").to(device)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=settings.learning_rate, weight_decay=0.0, fused=device == "cuda"
    )
    epochs = 1 if options.quick else settings.epochs
    steps = epochs * -(-len(train) // settings.batch)
    decay = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 - step / steps)
    for epoch in range(epochs):
        model.train()
        total = torch.zeros((), device=device)
        for batch in batches(lengths[train], settings.batch, rng):
            rows = train[batch]
            y_pred, _ = forward(model, tokens[rows, : lengths[rows].max()], padding)
            loss = torch.nn.functional.mse_loss(y_pred, y[rows])
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            decay.step()
            total += loss.detach() * len(rows)
        running.say(options.task, epoch, epochs, float(total) / len(train), started)

    parts = []
    for rows in (data["held_out"], train):
        y_pred, Z = predict(model, tokens[rows], lengths[rows], padding)
        parts.append(artefact.Rows(centre + spread * y_pred, Z, data["y"][rows], rows))
    note = {
        "encoder": json.loads((options.inputs / "smiles_encoder" / "origin.json").read_text()),
        "targets": "raw" if options.raw_targets else "standardised",
        **running.note(settings, started, epochs),
    }
    name = f"{options.task}_raw" if options.raw_targets else options.task
    artefact.save(
        options.out / f"{name}.npz", *parts, dimensions=settings.embedding_dimensions, note=note
    )
    print(json.dumps(artefact.load(options.out / f"{name}.npz").note))


if __name__ == "__main__":
    main()
