"""Speed: what an iteration costs, against the number of runs and against loops that do one run at a time.

`python -m benchmarks` (or `make benchmark`) writes docs/performance.md, docs/performance.png and
outputs/benchmark.json. Every ratio is taken inside one process, between measurements that alternate. Nothing
here is a timed test: the smoke test looks at the report's structure only.
"""
