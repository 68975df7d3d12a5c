// SPDX-License-Identifier: MIT
//
// schemas.mjs: validates Kubernetes objects against the JSON schemas of Kubernetes and of the Prometheus operator.
//
//   node schemas.mjs < OBJECTS    a JSON array; run in the folder that has node_modules
//
// The schemas allow unknown fields, which the API server refuses, so the objects are also written as typed literals to
// objects.mts: TypeScript then reports each misspelled field. Called by check.py.
import { writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const schemas = {
  'v1/Namespace': ['kubernetes-models', 'v1', 'Namespace', 'IoK8sApiCoreV1Namespace'],
  'v1/ConfigMap': ['kubernetes-models', 'v1', 'ConfigMap', 'IoK8sApiCoreV1ConfigMap'],
  'v1/Pod': ['kubernetes-models', 'v1', 'Pod', 'IoK8sApiCoreV1Pod'],
  'v1/Service': ['kubernetes-models', 'v1', 'Service', 'IoK8sApiCoreV1Service'],
  'v1/PersistentVolumeClaim': ['kubernetes-models', 'v1', 'PersistentVolumeClaim', 'IoK8sApiCoreV1PersistentVolumeClaim'],
  'batch/v1/Job': ['kubernetes-models', 'batch/v1', 'Job', 'IoK8sApiBatchV1Job'],
  'apps/v1/DaemonSet': ['kubernetes-models', 'apps/v1', 'DaemonSet', 'IoK8sApiAppsV1DaemonSet'],
  'admissionregistration.k8s.io/v1/MutatingAdmissionPolicy':
    ['kubernetes-models', 'admissionregistration.k8s.io/v1', 'MutatingAdmissionPolicy', 'IoK8sApiAdmissionregistrationV1MutatingAdmissionPolicy'],
  'admissionregistration.k8s.io/v1/MutatingAdmissionPolicyBinding':
    ['kubernetes-models', 'admissionregistration.k8s.io/v1', 'MutatingAdmissionPolicyBinding', 'IoK8sApiAdmissionregistrationV1MutatingAdmissionPolicyBinding'],
  'networking.k8s.io/v1/NetworkPolicy':
    ['kubernetes-models', 'networking.k8s.io/v1', 'NetworkPolicy', 'IoK8sApiNetworkingV1NetworkPolicy'],
  'monitoring.coreos.com/v1/PrometheusRule':
    ['@kubernetes-models/prometheus-operator', 'monitoring.coreos.com/v1', 'PrometheusRule',
      'ComGithubPrometheusOperatorPrometheusOperatorPkgApisMonitoringV1PrometheusRule'],
  'monitoring.coreos.com/v1/ServiceMonitor':
    ['@kubernetes-models/prometheus-operator', 'monitoring.coreos.com/v1', 'ServiceMonitor',
      'ComGithubPrometheusOperatorPrometheusOperatorPkgApisMonitoringV1ServiceMonitor'],
};

let text = '';
for await (const part of process.stdin) text += part;
let typed = '', bad = 0;
const here = createRequire(pathToFileURL(process.cwd() + '/'));
for (const [number, object] of JSON.parse(text).entries()) {
  const name = `${object.apiVersion}/${object.kind}`;
  if (!schemas[name]) {
    console.log(`${name}: no schema is known`);
    bad++;
    continue;
  }
  const [module, folder, kind, schema] = schemas[name];
  const { validate } = await import(pathToFileURL(`${process.cwd()}/node_modules/${module}/_schemas/${schema}.js`));
  if (!validate(object)) {
    bad++;
    for (const error of validate.errors) console.log(`${name}: ${error.instancePath}: ${error.message ?? error.keyword} ${JSON.stringify(error.params)}`);
  }
  typed += `import type { I${kind} as T${number} } from '${module}/${folder}/${kind}';\n`;
  typed += `export const o${number}: T${number} = ${JSON.stringify(object, null, 1)};\n`;
}
writeFileSync('objects.mts', typed);
process.exit(bad ? 1 : 0);
