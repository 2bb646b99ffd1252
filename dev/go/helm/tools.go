//go:build tools

// Package tools names what dev/install.sh builds, so that go.mod pins it.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
