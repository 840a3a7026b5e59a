"""Embed both chains of each antibody with a frozen language model, and train the small network.

    python -m studies.experiments.deutschmann2024.training.alphaseq

A chain's embedding is the mean of the last layer over its residues; the two are concatenated. The
network sees them as they are. ``--standardise`` first gives each column mean zero and variance one
over the training rows, which the paper does not mention; embeddings for kernels stay as they are.
Embeddings of chains are kept beside the results, so that a second run only trains.
"""

from __future__ import annotations

import copy
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModel

from studies.experiments.deutschmann2024 import artefact
from studies.experiments.deutschmann2024.config import SEED, AlphaSeqTraining
from studies.experiments.deutschmann2024.training import running


def embed(folder: Path, tokens: Any, special: Any, device: str) -> Any:
    """Mean state over residues, tokens that are not special, for chains of shape (m, length)."""
    model = AutoModel.from_pretrained(folder, add_pooling_layer=False).float().eval().to(device)
    not_residues = torch.from_numpy(special.astype(np.int64)).to(device)
    parts = []
    with torch.inference_mode():
        for start in range(0, len(tokens), 256):
            batch = torch.from_numpy(tokens[start : start + 256].astype(np.int64)).to(device)
            present = (batch != model.config.pad_token_id).long()
            states = model(input_ids=batch, attention_mask=present).last_hidden_state
            residue = ~torch.isin(batch, not_residues)[..., None]
            mean = (states * residue).sum(dim=1) / residue.sum(dim=1)
            parts.append(mean.to(torch.float16).cpu().numpy())
    return np.concatenate(parts)


def chain_embeddings(inputs: Path, cache: Path, data: Any, chain: str, device: str) -> Any:
    """Embeddings of the distinct chains of one kind: read if an earlier run left them."""
    path = cache / f"alphaseq_{chain}.npy"
    if path.exists():
        return np.load(path)
    folder = encoder_folder(inputs, chain)
    print(f"embedding {len(data[f'{chain}_tokens'])} {chain} chains", file=sys.stderr, flush=True)
    embedded = embed(folder, data[f"{chain}_tokens"], data[f"{chain}_special"], device)
    cache.mkdir(parents=True, exist_ok=True)
    np.save(path, embedded)
    return embedded


def encoder_folder(inputs: Path, chain: str) -> Path:
    """One encoder for each kind of chain, or one for both."""
    own = inputs / f"{chain}_encoder"
    return own if own.exists() else inputs / "antibody_encoder"


def fit(
    X: Any, y: Any, parts: dict[str, Any], settings: AlphaSeqTraining, epochs: int, limit: float
) -> tuple[Any, int, str]:
    """The network after the epoch with the least validation error, that epoch, and why it ended."""
    train, valid = parts["train"], parts["valid"]
    wide, narrow = settings.widths
    model = torch.nn.Sequential(
        torch.nn.Linear(X.shape[1], wide),
        torch.nn.ReLU(),
        torch.nn.Linear(wide, narrow),
        torch.nn.ReLU(),
        torch.nn.Linear(narrow, 1),
    ).to(X.device)
    fused = X.device.type == "cuda"
    optimiser = torch.optim.Adam(model.parameters(), lr=settings.learning_rate, fused=fused)
    best, best_epoch, kept, started = float("inf"), -1, None, time.monotonic()
    ended = f"{epochs} epochs"
    for epoch in range(epochs):
        for rows in train[torch.randperm(len(train), device=X.device)].split(settings.batch):
            loss = torch.nn.functional.mse_loss(model(X[rows])[:, 0], y[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        with torch.inference_mode():
            error = float(torch.nn.functional.mse_loss(model(X[valid])[:, 0], y[valid]))
        running.say("alphaseq", epoch, epochs, error, started)
        if error < best:
            best, best_epoch, kept = error, epoch, copy.deepcopy(model.state_dict())
        if epoch - best_epoch >= settings.patience:
            ended = f"no better for {settings.patience} epochs"
            break
        if time.monotonic() - started > limit:
            ended = f"{limit:g} seconds"
            break
    model.load_state_dict(kept)
    return model, best_epoch + 1, ended


def main() -> None:
    parser = running.arguments(__doc__)
    parser.add_argument("--standardise", action="store_true")
    parser.add_argument("--embed-only", action="store_true", help="stop before the training")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds to train")
    options = parser.parse_args()
    settings, started, device = AlphaSeqTraining(), time.monotonic(), running.device()
    with np.load(options.inputs / "alphaseq.npz") as stored:
        data = dict(stored)
    if options.quick:
        data = shortened(data, 40)
    heavy, light = (
        chain_embeddings(options.inputs, options.out, data, chain, device)
        for chain in ("heavy", "light")
    )
    if options.embed_only:
        return
    embedding = np.hstack([heavy[data["heavy"]], light[data["light"]]]).astype(np.float32)
    running.seed(SEED)
    train = data["train"]
    X = torch.from_numpy(embedding).to(device)
    if options.standardise:
        X = (X - X[train].mean(dim=0)) / X[train].std(dim=0).clamp(min=1e-6)
    y = torch.from_numpy(data["y"]).float().to(device)
    rows = {name: torch.from_numpy(data[name]).to(device) for name in ("train", "valid")}
    epochs = 2 if options.quick else settings.max_epochs
    model, best_epoch, ended = fit(X, y, rows, settings, epochs, options.limit)
    with torch.inference_mode():
        y_pred = model(X)[:, 0].cpu().numpy()
    parts = [
        artefact.Rows(y_pred[part], embedding[part], data["y"][part], part)
        for part in (data["held_out"], train)
    ]
    name = "alphaseq_standardised" if options.standardise else "alphaseq"
    origin = encoder_folder(options.inputs, "heavy") / "origin.json"
    note = {
        "encoder": json.loads(origin.read_text()),
        **running.note(settings, started, best_epoch),
    }
    note |= {"inputs": "standardised" if options.standardise else "raw", "ended": ended}
    path = options.out / f"{name}.npz"
    artefact.save(path, *parts, dimensions=settings.embedding_dimensions, note=note)
    print(json.dumps(artefact.load(path).note))


def shortened(data: dict[str, Any], n: int) -> dict[str, Any]:
    """The first n rows of each part and the chains that they need, for a rehearsal."""
    data = {**data, **{part: data[part][:n] for part in ("train", "valid", "held_out")}}
    used = np.concatenate([data[part] for part in ("train", "valid", "held_out")])
    for chain in ("heavy", "light"):
        needed, data[chain][used] = np.unique(data[chain][used], return_inverse=True)
        data[f"{chain}_tokens"] = data[f"{chain}_tokens"][needed]
        data[chain][np.setdiff1d(np.arange(len(data["y"])), used)] = 0
    return data


if __name__ == "__main__":
    main()
