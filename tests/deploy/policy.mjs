// SPDX-License-Identifier: MIT
//
// policy.mjs: evaluates the CEL expressions of a mutating admission policy.
//
//   node policy.mjs < CASES    a JSON array of {conditions, variables, change, context}; run in the folder that has node_modules
//
// Prints an array with what `change` is for each case, or null where a condition is false. The types of Kubernetes (Object.spec{name: 1})
// are maps here ({"name": 1}). Called by check.py.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const { Environment } = createRequire(pathToFileURL(process.cwd() + '/'))('@marcbachmann/cel-js');
const cel = new Environment({ unlistedVariablesAreDyn: true, homogeneousAggregateLiterals: false });
const maps = (text) => text.replace(/Object[.\w]*\{/g, '{').replace(/([{,]\s*)(\w+):/g, '$1"$2":');
let text = '';
for await (const part of process.stdin) text += part;
console.log(JSON.stringify(JSON.parse(text).map(({ conditions, variables, change, context }) => {
  if (!conditions.every((one) => cel.evaluate(one, context))) return null;
  const values = Object.fromEntries(variables.map((one) => [one.name, cel.evaluate(one.expression, context)]));
  return cel.evaluate(maps(change), { ...context, variables: values });
})));
