{{/* What is known of the distribution. */}}
{{- define "flex2csi.distribution" -}}
{{- $all := .Files.Get "files/distributions.yaml" | fromYaml -}}
{{- get $all .Values.distribution | required (printf "distribution %q is not known, only %s" .Values.distribution (keys $all | sortAlpha | join ", ")) | toYaml -}}
{{- end }}

{{- define "flex2csi.kubeletDir" -}}
{{- .Values.kubeletDir | default (include "flex2csi.distribution" . | fromYaml).kubeletDir | trimSuffix "/" -}}
{{- end }}

{{/* Where a controller beside kube-controller-manager has its socket. */}}
{{- define "flex2csi.attachDir" -}}
{{- .Values.attach.pluginDir | default .Values.volumePluginDir | default (include "flex2csi.distribution" . | fromYaml).pluginDir -}}
{{- end }}

{{- define "flex2csi.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{/*
Not empty if the API server has ValidatingAdmissionPolicy and the field appArmorProfile.
The version says it: helm template knows no kinds in .Capabilities.APIVersions, and would
leave out the policies.
*/}}
{{- define "flex2csi.since130" -}}
{{- if semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version }}true{{ end -}}
{{- end }}

{{/*
Not empty if no token that is on all nodes may attach or detach: where policies are wanted
to bound them, and there are none. install/components/kubernetes-before-1.30 does the same.
*/}}
{{- define "flex2csi.withoutPolicies" -}}
{{- if and .Values.policy.enabled (not (include "flex2csi.since130" .)) }}true{{ end -}}
{{- end }}

{{/* The configuration, as the programs read it. */}}
{{- define "flex2csi.config" -}}
{{- if not .Values.drivers -}}
{{- fail "drivers: missing; name your FlexVolume drivers and the CSI drivers for their volumes in a file, as flex2csi preset show NAME prints it or as in docs/bridge-configuration.md, and add --values FILE" -}}
{{- end -}}
{{- with toYaml .Values.drivers | regexFind "<fill in [^>]*>" -}}
{{- fail (printf "drivers: %q is to be filled in; write the value in its place, or use flex2csi preset show --set" .) -}}
{{- end -}}
apiVersion: {{ .Values.apiVersion }}
kind: {{ .Values.kind }}
drivers:
{{ toYaml .Values.drivers }}
{{- end }}

{{/*
The objects in a file of files/, which is the one that kustomize uses: with the
labels of the chart, in the release's namespace, and with other expressions for
the variables of policies. (list root file variables)
*/}}
{{- define "flex2csi.objects" -}}
{{- $root := index . 0 -}}
{{- $variables := index . 2 -}}
{{- $namespace := $root.Release.Namespace -}}
{{- range regexSplit "(?m)^---$" ($root.Files.Get (index . 1)) -1 }}
{{- $object := include "flex2csi.accounts" (list $root .) | fromYaml }}
{{- if eq (dig "metadata" "namespace" "" $object) "flex2csi" }}{{ $_ := set $object.metadata "namespace" $namespace }}{{ end }}
{{- if hasKey (dig "spec" dict $object) "paramRef" }}{{ $_ := set $object.spec.paramRef "namespace" $namespace }}{{ end }}
{{- if and (eq $object.kind "ValidatingAdmissionPolicyBinding") (eq $object.metadata.name "flex2csi-pods") }}{{ $_ := set $object.spec "validationActions" $root.Values.policy.pods.validationActions }}{{ end }}
{{- range dig "subjects" list $object }}{{ $_ := set . "namespace" $namespace }}{{ end }}
{{- range dig "spec" "variables" list $object }}
{{- if hasKey $variables .name }}{{ $_ := set . "expression" (get $variables .name) }}{{ end }}
{{- end }}
{{- if and (eq $object.kind "ClusterRole") (eq $object.metadata.name "flex2csi-node") (or (not $root.Values.rbac.nodesAttach) (include "flex2csi.withoutPolicies" $root)) }}
{{- range dig "rules" list $object }}
{{- if has "volumeattachments" .resources }}{{ $_ := set . "verbs" (without .verbs "create" "delete") }}{{ end }}
{{- end }}
{{- end }}
{{- $absent := and (eq $object.kind "ServiceAccount") (not (get $root.Values (trimPrefix "flex2csi-" $object.metadata.name)).serviceAccount.create) }}
{{- include "flex2csi.rename" (list $root $object) }}
{{- if $absent }}
{{- else if or (include "flex2csi.since130" $root) (not (hasPrefix "ValidatingAdmissionPolicy" $object.kind)) }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
{{- end }}

{{/* The flag for logLevel. */}}
{{- define "flex2csi.logLevel" -}}
{{- with .Values.logLevel }}
- --v={{ . }}
{{- end }}
{{- end }}

{{/* A list of strings in CEL, which must not be empty for its type to be known. */}}
{{- define "flex2csi.celList" -}}
['{{ join "', '" . }}']
{{- end }}

{{/* The container that lets those read the metrics who may. */}}
{{- define "flex2csi.metricsProxy" -}}
- name: metrics
  image: {{ .Values.metrics.proxyImage }}
  imagePullPolicy: IfNotPresent
  args:
    - --secure-listen-address=:9899
    - --upstream=http://127.0.0.1:9898/
    - --allow-paths=/flex2csi/metrics
  ports:
    - name: metrics
      containerPort: 9899
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities:
      drop: [ALL]
    seccompProfile:
      type: RuntimeDefault
  resources:
    requests:
      cpu: 1m
      memory: 16Mi
    limits:
      memory: 64Mi
{{- end }}
