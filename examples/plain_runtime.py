"""Train with nothing but ONNX Runtime: python plain_runtime.py STEP.onnx DATA.npz [STEPS]."""

import json
import sys

import numpy as np
import onnxruntime

onnxruntime.set_default_logger_severity(3)  # no warnings about inputs that have defaults
session = onnxruntime.InferenceSession(sys.argv[1])
step = json.loads(session.get_modelmeta().custom_metadata_map["amp_rewrite.step"])
names = [output.name for output in session.get_outputs()]
data = np.load(sys.argv[2])
state = {}  # the first step starts from the initial state in the file
for _ in range(int(sys.argv[3]) if len(sys.argv) > 3 else 10):
    feeds = {name: data[name] for name in step["inputs"]} | state
    results = dict(zip(names, session.run(names, feeds), strict=True))
    state = {s["name"]: results[s["output"]] for s in step["states"]}
    print(results[step["fetches"]["loss"]])
