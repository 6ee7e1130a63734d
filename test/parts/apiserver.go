package parts

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// readyPatience is far more than an API server takes to come up.
const readyPatience = 3 * time.Minute

// An API is where an API server is found, and by which user.
type API struct {
	// Address is host:port.
	Address string
	// Token is the user's.
	Token string
	// Cert is what to trust, in PEM.
	Cert []byte
}

// Config is for client-go.
func (a API) Config() *rest.Config {
	return &rest.Config{
		Host: "https://" + a.Address, BearerToken: a.Token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: a.Cert},
	}
}

// Kubeconfig is for programs.
func (a API) Kubeconfig() []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters: [{name: test, cluster: {server: "https://%s", certificate-authority-data: %s}}]
users: [{name: test, user: {token: "%s"}}]
`, a.Address, base64.StdEncoding.EncodeToString(a.Cert), a.Token)
}

// WaitReady waits until the API server, which the part is, says that it is
// ready.
func (a API) WaitReady(part *Part) error {
	client, err := rest.HTTPClientFor(a.Config())
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	err = errors.New("no answer")
	for deadline := time.Now().Add(readyPatience); time.Now().Before(deadline) && !part.Ended(); time.Sleep(20 * time.Millisecond) {
		if err = askReady(client, "https://"+a.Address+"/readyz"); err == nil {
			return nil
		}
	}
	return err
}

func askReady(client *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", url, res.Status)
	}
	return nil
}
