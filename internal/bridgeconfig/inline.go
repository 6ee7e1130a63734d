package bridgeconfig

import "regexp"

// DeniesInline reports whether the policy flex2csi-pods (install/policy/pods.yaml) denies pods
// an inline volume of a FlexVolume driver, if this is the text of the configuration. These are
// the expressions of the policy: CEL has the regular expressions of Go. test/cluster/rbac holds
// both to the same cases.
func DeniesInline(configuration, driver string) bool {
	has := func(pattern string) bool { return regexp.MustCompile(pattern).MatchString(configuration) }
	const drivers = `(?m)^drivers: *(?:#.*)?\n(?: *(?:#.*)?\n)*`
	indentation := "as nowhere in the documents"
	switch {
	case has(drivers + `- `):
		indentation = ""
	case has(drivers + `  - `):
		indentation = "  "
	}
	entry := `(?m)^` + indentation + `- (?:.*\n(?:(?:` + indentation + `  .*)?\n)*` + indentation + `  )?`
	further := ` *(?: #.*)?\n(?:(?:` + indentation + `  .*)?\n)*` + indentation + `  `
	name := regexp.QuoteMeta(driver)
	flexDriver, inline := `flexDriver: *["']?`+name+`["']?`, `inline: *true`
	return has(`(?:^|[^A-Za-z0-9._/-])`+name+`(?:[^A-Za-z0-9._/-]|$)`) &&
		!has(entry+flexDriver+further+inline+` *(?: #.*)?$`) && !has(entry+inline+further+flexDriver+` *(?: #.*)?$`)
}
