"""Train with nothing but ONNX Runtime: python plain_runtime.py STEP.onnx DATA.npz [STEPS]."""

import json
import sys

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1])
step = json.loads(session.get_modelmeta().custom_metadata_map["amp_rewrite.step"])
outputs = [output.name for output in session.get_outputs()]
data = np.load(sys.argv[2])
state = {}  # without it, the first step starts from the initial state in the file
for _ in range(int(sys.argv[3]) if len(sys.argv) > 3 else 10):
    feeds = {name: data[name] for name in step["inputs"]} | state
    results = dict(zip(outputs, session.run(outputs, feeds), strict=True))
    state = {s["name"]: results[s["output"]] for s in step["states"]}
    print(float(results[step["fetches"]["loss"]]))
