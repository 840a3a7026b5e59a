"""Whether the claims are true, and how fast: experiments and benchmarks."""
