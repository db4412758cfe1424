package gateway

import "net/http"

const openAPIPath = "/openapi.json"

type document struct{}

func (g *Gateway) serveOpenAPI(w http.ResponseWriter, r *http.Request, t *table) {}
