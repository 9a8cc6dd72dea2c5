{{- define "ray-history.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "ray-history.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "ray-history.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "ray-history.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "ray-history.selectorLabels" -}}
app.kubernetes.io/name: {{ include "ray-history.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "ray-history.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "ray-history.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "ray-history.serviceAccountName" -}}
{{- default (ternary (include "ray-history.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{- /* Whether the server uses the API server. */ -}}
{{- define "ray-history.asksKubernetes" -}}
{{- if or (ne .Values.kube.mode "off") (eq .Values.auth.mode "kubernetes") -}}true{{- end -}}
{{- end -}}

{{- define "ray-history.storageUrl" -}}
{{- if .Values.trialS3.enabled -}}
s3://{{ .Values.trialS3.bucket }}
{{- else -}}
{{- required "storage.url is required: s3://bucket/prefix, gs://..., az://..., oss://... or file:///dir; or set trialS3.enabled=true" .Values.storage.url -}}
{{- end -}}
{{- end -}}

{{- define "ray-history.image" -}}
{{- .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ with .Values.image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{- /* Refuses contradictory values before anything is installed. */ -}}
{{- define "ray-history.check" -}}
{{- $replicas := ternary .Values.autoscaling.maxReplicas .Values.replicaCount .Values.autoscaling.enabled | int -}}
{{- if and (gt $replicas 1) .Values.cache.persistence.enabled (not (has "ReadWriteMany" .Values.cache.persistence.accessModes)) -}}
{{- fail "cache.persistence with more than one replica requires accessModes [ReadWriteMany]; without persistence each pod has its own cache" -}}
{{- end -}}
{{- if and .Values.trialS3.enabled .Values.storage.url -}}
{{- fail "trialS3.enabled brings its own storage: leave storage.url empty" -}}
{{- end -}}
{{- if and (hasPrefix "file://" .Values.storage.url) (not .Values.storage.claimName) -}}
{{- fail "storage.url file:///dir requires storage.claimName, the claim to mount there" -}}
{{- end -}}
{{- if and (eq .Values.auth.mode "token") (not .Values.auth.tokensSecret.name) -}}
{{- fail "auth.mode token requires auth.tokensSecret.name, the Secret with the tokens" -}}
{{- end -}}
{{- if and .Values.ingress.enabled .Values.networkPolicy.enabled (not .Values.networkPolicy.ingressFrom) -}}
{{- fail "ingress.enabled requires networkPolicy.ingressFrom, the namespace of the ingress controller, for example [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ingress-nginx}}}]; or networkPolicy.enabled=false" -}}
{{- end -}}
{{- if and (eq .Values.auth.mode "header") (not (and .Values.auth.header .Values.auth.trustedPeers)) -}}
{{- fail "auth.mode header requires auth.header and auth.trustedPeers, the proxies that may set it" -}}
{{- end -}}
{{- end -}}
