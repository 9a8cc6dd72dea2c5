"""Names, arguments and output that are hard to keep; the driver ends well."""

import sys
import time
from contextlib import suppress

import ray
from ray.exceptions import RayError


@ray.remote(num_cpus=0.5)
def prints():
    sys.stdout.write("\x1b[31mred\x1b[0m\rover\n\ttab\n\n\n")
    sys.stdout.write("long " * 3000 + "\n")
    sys.stdout.flush()
    sys.stdout.buffer.write(b"\xff\xfe\x00 no text \xc3\x28\n")
    sys.stdout.buffer.flush()
    sys.stderr.write("ünïcode \U0001f600 without an end")


@ray.remote(num_cpus=0.5)
def silent():
    pass


@ray.remote(num_cpus=0.5)
def complains():
    raise RuntimeError("\x1b[1mbold\x1b[0m " + "x" * 3000)


@ray.remote(num_cpus=0.01)
class Speaker:
    def __repr__(self):
        return "Speaker <b>&\n/../"

    def speak(self, n):
        for i in range(n):
            print(f"line {i}")
        print("to stderr", file=sys.stderr)


class Unpicklable(Exception):
    def __reduce__(self):
        raise TypeError("cannot be pickled")


@ray.remote(num_cpus=0.5)
def unpicklable():
    raise Unpicklable("never arrives")


def swallow(reference):
    with suppress(RayError, RuntimeError):
        ray.get(reference)


ray.init()
NAMES = [
    "new\nline",
    "smile \U0001f600",
    "x" * 600,
    " blank ends ",
    "quote\"'`\\",
    "<script>",
    "a/b?c=d&e#f%41",
    "NULL",
]
ray.get([silent.options(name=name).remote() for name in NAMES])
ray.get([prints.remote(), silent.remote()])
swallow(complains.remote())
swallow(unpicklable.remote())
speakers = [Speaker.options(name=name).remote() for name in NAMES[:3]]
ray.get([speaker.speak.remote(30) for speaker in speakers])
ray.get(silent.options(runtime_env={"env_vars": {"EMPTY": "", "ODD": "a=b\n\U0001f600"}}).remote())
print("the driver's own output\x00 ends here")
time.sleep(2)  # all have reported
