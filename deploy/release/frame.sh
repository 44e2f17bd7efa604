set -eu
LC_ALL=C PATH={{ searched }}
export LC_ALL PATH
umask 022
{% for name, value in values.items() %}
{{ name }}={{ value }}
{% endfor %}
refuse() { code=$1; shift; echo "$*" | tr '\n' ' ' >&2; echo >&2; exit "$code"; }
main() {
{% include body %}
}
main
