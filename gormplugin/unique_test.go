package gormplugin

import (
	"errors"
	"testing"
)

// Which index a database means, and what it is mapped to.
func TestWhichIndex(t *testing.T) {
	errOther := errors.New("other")
	finder := func(mappings ...uniqueMapping) indexFinder {
		return indexFinder{table: "orders", request: "request_id", mappings: mappings, declared: []unique{
			{name: "uk_request", columns: []string{"request_id"}},
			{name: "uk_user_item", columns: []string{"user_id", "item_id"}},
			{name: "uk_live", columns: []string{"user_id", "item_id"}, where: "status <> 2"},
			{name: "PRIMARY", columns: []string{"id"}},
		}}
	}
	tests := map[string]struct {
		said     dbError
		mappings []uniqueMapping
		want     duplicate
	}{
		"PostgreSQL":             {dbError{name: "uk_user_item", table: "orders"}, []uniqueMapping{{index: "uk_user_item", err: errBought}}, duplicate{index: "uk_user_item", mapped: errBought}},
		"MySQL 8.0":              {dbError{name: "orders.uk_user_item"}, []uniqueMapping{{index: "uk_user_item", err: errBought}}, duplicate{index: "uk_user_item", mapped: errBought}},
		"MariaDB, another case":  {dbError{name: "UK_User_Item"}, []uniqueMapping{{index: "uk_user_item", err: errBought}}, duplicate{index: "UK_User_Item", mapped: errBought}},
		"the request's":          {dbError{name: "uk_request"}, nil, duplicate{index: "uk_request", request: true}},
		"the request's, columns": {dbError{table: "orders", columns: []string{"request_id"}}, nil, duplicate{index: "uk_request", request: true}},
		"SQLite, two over the same columns": {
			dbError{table: "orders", columns: []string{"user_id", "item_id"}},
			[]uniqueMapping{{index: "uk_live", err: errBought}},
			duplicate{index: "uk_live,uk_user_item", mapped: errBought},
		},
		"SQLite, primary key":  {dbError{table: "orders", columns: []string{"id"}}, nil, duplicate{index: "PRIMARY"}},
		"SQLite, expression":   {dbError{name: "uk_lower"}, []uniqueMapping{{index: "uk_lower", err: errBought}}, duplicate{index: "uk_lower", mapped: errBought}},
		"not mapped":           {dbError{name: "uk_user_item"}, []uniqueMapping{{index: "uk_other", err: errOther}}, duplicate{index: "uk_user_item"}},
		"undeclared, unmapped": {dbError{name: "uk_new"}, nil, duplicate{index: "uk_new"}},
		"undeclared, by columns of WithUnique": {
			dbError{table: "orders", columns: []string{"code", "shop_id"}},
			[]uniqueMapping{{index: "uk_code", err: errBought, columns: []string{"orders.shop_id", "orders.code"}}},
			duplicate{index: "uk_code", mapped: errBought},
		},
		"columns of another table": {
			dbError{table: "orders", columns: []string{"code"}},
			[]uniqueMapping{{index: "uk_code", err: errBought, columns: []string{"coupons.code"}}},
			duplicate{},
		},
		"one name on two tables": {
			dbError{name: "orders.uk"},
			[]uniqueMapping{{index: "uk", err: errOther}, {table: "coupons", index: "uk", err: errOther}, {table: "orders", index: "uk", err: errBought}},
			duplicate{index: "uk", mapped: errBought},
		},
		"the other of two tables": {
			dbError{name: "uk", table: "coupons"},
			[]uniqueMapping{{table: "orders", index: "uk", err: errOther}, {table: "coupons", index: "uk", err: errBought}, {index: "uk", err: errOther}},
			duplicate{index: "uk", mapped: errBought},
		},
		"a partition's own name": {
			dbError{name: "orders_2024_user_id_item_id_idx", table: "orders_2024", columns: []string{"user_id", "item_id"}},
			[]uniqueMapping{{index: "uk_user_item", err: errBought}},
			duplicate{index: "uk_live,uk_user_item", mapped: errBought},
		},
		"nothing said": {dbError{}, nil, duplicate{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := finder(tt.mappings...).find(tt.said); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}
