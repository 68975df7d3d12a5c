// SPDX-License-Identifier: MIT
// llama.cpp in Node.js: loads its CUDA backend, and says what the device has.  Arguments: the environment's folder.
const {getLlama} = await import(process.argv[2] + "/node_modules/node-llama-cpp/dist/index.js");
const llama = await getLlama({gpu: "cuda", build: "never"});
console.log("out:", llama.gpu, await llama.getGpuDeviceNames());
const {total} = await llama.getVramState();
console.log("out: total", total);
console.log(total > 0 ? "1 of 1 agree" : "0 of 1 agree");
process.exit(0);
