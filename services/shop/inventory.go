package shop

import (
	"fmt"
	"net/http"
)

// prices of what there is, in cents.
var prices = map[string]int{"tea": 420, "coffee": 690, "cups": 1250}

// getItem answers what an item costs. The price comes first, so that who wants no more need not read on.
func getItem(w http.ResponseWriter, r *http.Request) {
	item := r.PathValue("item")
	price, ok := prices[item]
	if !ok {
		fail(w, http.StatusNotFound, fmt.Errorf("there is no item %q", item))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"price":%8d,"item":%q,"description":"%s, as good as ever, packed with care and sent the same day"}`+"\n", price, item, item)
}
