{{- /* SPDX-License-Identifier: MIT */ -}}
{{- define "gpuprof.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "gpuprof.labels" -}}
app.kubernetes.io/name: gpuprof-agent
{{- end }}
