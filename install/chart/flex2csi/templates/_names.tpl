{{/* Names, labels and annotations of all objects. */}}

{{/* app.kubernetes.io/name. */}}
{{- define "flex2csi.name" -}}
{{- .Values.nameOverride | default "flex2csi" -}}
{{- end }}

{{/*
What names of objects begin with. It has no release in it: a node has one plugin directory, so
a cluster has one flex2csi, and the documents can name its objects.
*/}}
{{- define "flex2csi.fullname" -}}
{{- .Values.fullnameOverride | default (include "flex2csi.name" .) -}}
{{- end }}

{{/* The ServiceAccount of the node or the controller: (list root part). */}}
{{- define "flex2csi.account" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
{{- $account := (get $root.Values $part).serviceAccount -}}
{{- if not (or $account.create $account.name) -}}
{{- fail (printf "%s.serviceAccount.name: missing with create: false; name the ServiceAccount that exists" $part) -}}
{{- end -}}
{{- $account.name | default (printf "%s-%s" (include "flex2csi.fullname" $root) $part) -}}
{{- end }}

{{/* Labels by which a part is found: (list root component). */}}
{{- define "flex2csi.selector" -}}
app.kubernetes.io/name: {{ include "flex2csi.name" (index . 0) }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* Labels of an object; those of the chart come first: (list root component [more]). */}}
{{- define "flex2csi.labels" -}}
{{- $root := index . 0 -}}
{{- $labels := include "flex2csi.selector" . | fromYaml -}}
{{- $_ := set $labels "app.kubernetes.io/part-of" "flex2csi" -}}
{{- $_ := set $labels "app.kubernetes.io/instance" $root.Release.Name -}}
{{- $_ := set $labels "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $labels "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- $_ := set $labels "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") -}}
{{- range slice . 2 }}{{ $_ := merge $labels . }}{{ end -}}
{{- merge $labels $root.Values.commonLabels | toYaml -}}
{{- end }}

{{/*
The metadata of an object: (dict "root" . "name" "node" "component" "node"), and if need be
"namespace", "labels" and "annotations".
*/}}
{{- define "flex2csi.metadata" -}}
name: {{ list (include "flex2csi.fullname" .root) .name | compact | join "-" }}
{{- with get . "namespace" }}
namespace: {{ . }}
{{- end }}
{{- with merge dict (get . "annotations" | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
labels:
  {{- include "flex2csi.labels" (list .root .component (get . "labels" | default dict)) | nindent 2 }}
{{- end }}

{{/* The text of a file of files/, with the ServiceAccounts as they are called: (list root text). */}}
{{- define "flex2csi.accounts" -}}
{{- $root := index . 0 -}}
{{- $text := index . 1 -}}
{{- $node := include "flex2csi.account" (list $root "node") | replace "." "[.]" -}}
{{- $controller := include "flex2csi.account" (list $root "controller") | replace "." "[.]" -}}
{{- $text = $text | replace ":(flex2csi-node|flex2csi-controller)$'" (printf ":(%s|%s)$'" $node $controller) -}}
{{- $text = $text | replace ":flex2csi-node$'" (printf ":%s$'" $node) | replace ":flex2csi-controller$'" (printf ":%s$'" $controller) -}}
{{- $text -}}
{{- end }}

{{/*
Names, labels and annotations of an object of files/, which is changed: (list root object).
Policies and what is in flex2csi-nodes keep their names: a cluster has them once.
*/}}
{{- define "flex2csi.rename" -}}
{{- $root := index . 0 -}}
{{- $object := index . 1 -}}
{{- $full := include "flex2csi.fullname" $root -}}
{{- $part := regexFind "node|controller|attach" $object.metadata.name -}}
{{- $annotations := dig "metadata" "annotations" dict $object -}}
{{- if hasPrefix "ValidatingAdmissionPolicy" $object.kind -}}
{{- $part = "policy" -}}
{{- else if eq $object.kind "ServiceAccount" -}}
{{- $annotations = (get $root.Values $part).serviceAccount.annotations -}}
{{- $_ := set $object.metadata "name" (include "flex2csi.account" (list $root $part)) -}}
{{- else if ne (dig "metadata" "namespace" $object.metadata.name $object) "flex2csi-nodes" -}}
{{- range list $object.metadata (get $object "roleRef") | compact -}}
{{- $_ := set . "name" (regexReplaceAll "^flex2csi-" .name (printf "%s-" $full)) -}}
{{- end -}}
{{- end -}}
{{- range dig "subjects" list $object -}}
{{- $_ := set . "name" (include "flex2csi.account" (list $root (trimPrefix "flex2csi-" .name))) -}}
{{- end -}}
{{- with dig "spec" "paramRef" dict $object }}{{ $_ := set . "name" (printf "%s-config" $full) }}{{ end -}}
{{- $_ := set $object.metadata "labels" (include "flex2csi.labels" (list $root $part (dig "metadata" "labels" dict $object)) | fromYaml) -}}
{{- with merge dict $annotations $root.Values.commonAnnotations }}{{ $_ := set $object.metadata "annotations" . }}{{ end -}}
{{- end }}
