// Runs models with onnxruntime-web on Dawn, the WebGPU of Chromium, in Node.
//
// Usage: node --liftoff-only on_dawn.mjs NODE_MODULES < REQUESTS
//
// REQUESTS is JSON: [{"model": path, "feeds": {name: {"type", "dims", "data"}}}, ...]. Prints a list
// of {name: [numbers]}, the outputs of each.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const modules = process.argv[2];
const load = (path) => import(pathToFileURL(`${modules}/${path}`));

const { create, globals } = await load("webgpu/index.js");
Object.assign(globalThis, globals);
Object.defineProperty(globalThis, "navigator", { value: { gpu: create([]) } });

// The memory of WebAssembly is shared, and Dawn's binding takes no view of shared memory.
const write = GPUQueue.prototype.writeBuffer;
GPUQueue.prototype.writeBuffer = function (buffer, offset, data, ...part) {
  return write.call(this, buffer, offset, new Uint8Array(data), ...part);
};

const ort = await load("onnxruntime-web/dist/ort.webgpu.bundle.min.mjs");
ort.env.wasm.numThreads = 1;

const results = [];
for (const { model, feeds } of JSON.parse(readFileSync(0, "utf-8"))) {
  const session = await ort.InferenceSession.create(readFileSync(model), {
    executionProviders: ["webgpu"],
  });
  const tensors = Object.entries(feeds).map(([name, { type, dims, data }]) => [
    name,
    new ort.Tensor(type, data, dims),
  ]);
  const outputs = await session.run(Object.fromEntries(tensors));
  const numbers = Object.entries(outputs).map(([name, { data }]) => [name, Array.from(data, String)]);
  results.push(Object.fromEntries(numbers));
}
console.log(JSON.stringify(results));
process.exit(0); // Dawn's device keeps the process alive
