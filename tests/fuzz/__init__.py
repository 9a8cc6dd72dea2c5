"""Fuzzing of everything that parses bytes from outside: the bucket, Ray nodes, clients, Kubernetes, configuration.

targets/        what is called with any bytes, and what must hold then
corpus/         inputs that showed a defect once, or reach code that no seed reaches
target          what a target is
growth          whether a function takes linear time
mutations       makes new inputs out of old ones
guided          one target under atheris, which keeps inputs that reach new code
requests/       requests of viewers with different rights to a running server
campaign        all targets, each in a process of its own: `make fuzz`
test_targets    the bounded, deterministic part, which `make test` runs
"""
