{{- define "sinkpipeline-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "sinkpipeline-operator.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Of objects outside namespaces: releases of one name in several namespaces must not share them. */}}
{{- define "sinkpipeline-operator.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "sinkpipeline-operator.fullname" .) -}}
{{- end -}}

{{- define "sinkpipeline-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "sinkpipeline-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "sinkpipeline-operator.commonLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: sinkpipeline
{{- end -}}

{{- define "sinkpipeline-operator.labels" -}}
{{ include "sinkpipeline-operator.selectorLabels" . }}
{{ include "sinkpipeline-operator.commonLabels" . }}
{{- end -}}

{{- define "sinkpipeline-operator.driverLabels" -}}
app.kubernetes.io/name: {{ include "sinkpipeline-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: driver
{{ include "sinkpipeline-operator.commonLabels" . }}
{{- end -}}

{{- define "sinkpipeline-operator.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "sinkpipeline-operator.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Drivers outlive a release, and need their account and its rights for as long as they run. */}}
{{- define "sinkpipeline-operator.kept" -}}
helm.sh/resource-policy: keep
{{- end -}}

{{/* Where drivers run, as a JSON list under "in". */}}
{{- define "sinkpipeline-operator.driverNamespaces" -}}
{{- $namespaces := list .Release.Namespace -}}
{{- if .Values.watchNamespaces -}}{{- $namespaces = .Values.watchNamespaces -}}{{- end -}}
{{- if .Values.driver.namespaces -}}{{- $namespaces = .Values.driver.namespaces -}}{{- end -}}
{{- dict "in" $namespaces | toJson -}}
{{- end -}}

{{/* (dict "image" <values of an image> "root" $) */}}
{{- define "sinkpipeline-operator.image" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (default .root.Chart.AppVersion .image.tag) -}}
{{- end -}}
{{- end -}}

{{/* Of a pod of `helm test`. It is not found by what finds the operator's. */}}
{{- define "sinkpipeline-operator.testLabels" -}}
app.kubernetes.io/name: {{ include "sinkpipeline-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: test
{{- end -}}

{{/* (dict "monitor" <values of a monitor> "root" $) */}}
{{- define "sinkpipeline-operator.monitorMeta" -}}
name: {{ include "sinkpipeline-operator.fullname" .root }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- merge (include "sinkpipeline-operator.labels" .root | fromYaml) .monitor.labels | toYaml | nindent 2 }}
{{- end -}}

{{/* How a monitor asks, by its values. */}}
{{- define "sinkpipeline-operator.scraping" -}}
path: /metrics
{{- range $name := list "interval" "scrapeTimeout" }}
{{- with get $ $name }}
{{ $name }}: {{ . }}
{{- end }}
{{- end }}
{{- range $name := list "relabelings" "metricRelabelings" }}
{{- with get $ $name }}
{{ $name }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}
