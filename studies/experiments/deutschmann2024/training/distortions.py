"""The paper's three distortions of an image, for a whole batch at a time.

In this order: a 3 × 3 Gaussian blur with probability 0.3, a perspective transformation of scale
0.4 with probability 0.3, and pixel noise of standard deviation 1 / (6 + ν), ν ~ U(0, 5). The width
of the blur, which the paper leaves open, is drawn from U(0.1, 2), torchvision's default; the
perspective is drawn as torchvision's RandomPerspective does: each corner moves inwards by a whole
number of pixels, at most scale times half the side.
"""

from __future__ import annotations

from typing import Any

import torch

from studies.experiments.deutschmann2024.config import MnistTraining


def distort(images: Any, settings: MnistTraining, generator: Any) -> Any:
    """Draw the distortions anew for each image of shape (m, 1, side, side), values in [0, 1]."""
    count, device = len(images), images.device

    def uniform(low: float = 0.0, high: float = 1.0) -> Any:
        return low + (high - low) * torch.rand(count, generator=generator, device=device)

    blurred, bent = (
        uniform() < settings.blur_probability,
        uniform() < settings.perspective_probability,
    )
    sigma, nu = uniform(0.1, 2.0), uniform(0.0, 5.0)
    limit = int(settings.perspective_scale * (images.shape[-1] // 2))
    moves = torch.randint(0, limit + 1, (count, 4, 2), generator=generator, device=device)
    noise = torch.randn(images.shape, generator=generator, device=device)

    images = torch.where(blurred[:, None, None, None], blur(images, sigma), images)
    images = torch.where(bent[:, None, None, None], perspective(images, moves), images)
    return images + noise / (6 + nu)[:, None, None, None]


def blur(images: Any, sigma: Any) -> Any:
    """Gaussian blur over 3 × 3 pixels, edges mirrored, with a width for each image."""
    side = torch.exp(-0.5 / sigma**2)
    side = (side / (1 + 2 * side))[:, None, None, None]
    wide = torch.nn.functional.pad(images, (1, 1, 0, 0), mode="reflect")
    rows = side * (wide[..., :-2] + wide[..., 2:]) + (1 - 2 * side) * images
    tall = torch.nn.functional.pad(rows, (0, 0, 1, 1), mode="reflect")
    return side * (tall[..., :-2, :] + tall[..., 2:, :]) + (1 - 2 * side) * rows


def perspective(images: Any, moves: Any) -> Any:
    """Send the corners of each image inwards by ``moves``: shape (m, 4, 2), in pixels.

    Corners are in the order top left, top right, bottom right, bottom left. Outside is black.
    """
    count, _, height, width = images.shape
    start = torch.tensor(
        [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]], device=images.device
    ).double()
    inwards = torch.tensor([[1, 1], [-1, 1], [-1, -1], [1, -1]], device=images.device)
    end = start + moves * inwards
    matrix = homography(end, start.expand(count, 4, 2)).to(images.dtype)

    centres = torch.stack(
        torch.meshgrid(
            torch.arange(width, device=images.device, dtype=images.dtype),
            torch.arange(height, device=images.device, dtype=images.dtype),
            indexing="xy",
        ),
        dim=-1,
    ).reshape(-1, 2)
    points = torch.nn.functional.pad(centres, (0, 1), value=1.0) @ matrix.transpose(1, 2)
    source = (points[..., :2] / points[..., 2:]).reshape(count, height, width, 2)
    scale = torch.tensor([width - 1, height - 1], device=images.device, dtype=images.dtype)
    return torch.nn.functional.grid_sample(
        images, 2 * source / scale - 1, mode="bilinear", padding_mode="zeros", align_corners=True
    )


def homography(origin: Any, image: Any) -> Any:
    """The 3 × 3 matrices that send four points to four others, for each pair in a batch."""
    x, y = origin[..., 0], origin[..., 1]
    u, v = image[..., 0], image[..., 1]
    one, zero = torch.ones_like(x), torch.zeros_like(x)
    upper = torch.stack([x, y, one, zero, zero, zero, -u * x, -u * y], dim=-1)
    lower = torch.stack([zero, zero, zero, x, y, one, -v * x, -v * y], dim=-1)
    right = torch.cat([u, v], dim=1)
    solved = torch.linalg.solve(torch.cat([upper, lower], dim=1), right[..., None])[..., 0]
    return torch.nn.functional.pad(solved, (0, 1), value=1.0).reshape(-1, 3, 3)
