{{/* What the operator does in a namespace with pipelines; of a ClusterRole where all of them are watched. */}}
{{- define "sinkpipeline-operator.namespacedRules" -}}
# Pipelines are followed; patched are only finalizers (deletionPolicy: Delete) and annotations.
- apiGroups: [sinkpipeline.io]
  resources: [sinkpipelines]
  verbs: [get, list, watch, patch]
# The operator is the only writer of the status.
- apiGroups: [sinkpipeline.io]
  resources: [sinkpipelines/status]
  verbs: [update]
# What it makes is owned by the pipeline, with blockOwnerDeletion: clusters that enforce it ask for this right.
- apiGroups: [sinkpipeline.io]
  resources: [sinkpipelines/finalizers]
  verbs: [update]
# What people ask for once: followed, its status written, and deleted some days after its end.
- apiGroups: [sinkpipeline.io]
  resources: [sinkpipelineactions]
  verbs: [list, watch, delete]
- apiGroups: [sinkpipeline.io]
  resources: [sinkpipelineactions/status, sinkpipelineactions/finalizers]
  verbs: [update]
# Jobs of such actions.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, create, delete]
# The child: created, followed, given a nonce (patch), and deleted for a restart.
- apiGroups: [sparkoperator.k8s.io]
  resources: [sparkapplications]
  verbs: [get, list, watch, create, patch, delete]
# Run configurations, the older ones of which are deleted, and what a driver goes on from.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [list, create, patch, delete]
# Drivers: where they listen, how they ended, and what they said last.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
# Events of pipelines; one that repeats is patched.
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{/* Likewise, of Secrets. */}}
{{- define "sinkpipeline-operator.secretRules" -}}
# Those that pipelines refer to are read by name, again at each resync: neither listed nor followed. Written are the
# drivers' tokens; they go with the pipeline that owns them.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create, patch]
{{- end -}}

{{/* What it reads outside namespaces. */}}
{{- define "sinkpipeline-operator.clusterRules" -}}
# Its uid names the cluster in the owner of a progress.
- apiGroups: [""]
  resources: [namespaces]
  resourceNames: [kube-system]
  verbs: [get]
# Its own kinds: whether they are those of an older release{{ if .Values.crds.upgrade }}, which are replaced then{{ end }}.
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  resourceNames: [sinkpipelines.sinkpipeline.io, sinkpipelineactions.sinkpipeline.io]
  verbs: [get{{ if .Values.crds.upgrade }}, patch{{ end }}]
{{- if not .Values.watchNamespaces }}
# Kinds that come or go while the operator runs: Kubeflow's Spark operator may be installed after it. An operator of named
# namespaces doesn't ask for them.
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  verbs: [list, watch]
{{- end }}
{{- end -}}
