package holdfast_test

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/glebarez/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/holdfast-go/holdfast/gormplugin"
)

// Every Go block in the README and under docs stands, line by line, in a Go file that is compiled with the tests, so
// that a reader can paste it. Indentation does not count.
func TestGoBlocksOfTheDocsCompile(t *testing.T) {
	var sources []string
	var pages []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata"):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".md"):
			pages = append(pages, path)
		case strings.HasSuffix(path, ".go"):
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			sources = append(sources, flat(string(text)))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	blocks := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range goBlocks(string(text)) {
			blocks++
			if !anyContains(sources, flat(block)) {
				t.Errorf("%s has a Go block that no compiled file contains:\n%s", page, block)
			}
		}
	}
	if blocks == 0 {
		t.Error("no Go block found: the test looks in the wrong place")
	}
}

// The models of the README are what VerifySchema asks for.
func TestModelsOfTheReadmeFitTheirTables(t *testing.T) {
	db, err := gorm.Open(sqlite.Open(filepath.Join(t.TempDir(), "shop.db")), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		t.Fatal(err)
	}
	if pool, err := db.DB(); err == nil {
		t.Cleanup(func() { _ = pool.Close() })
	}
	plugin := gormplugin.New(
		gormplugin.WithModels(&Item{}, &Order{}), gormplugin.WithUnique("uk_user_item", ErrAlreadyBought),
		gormplugin.WithLogger(slog.New(slog.DiscardHandler)),
	)
	if err := db.AutoMigrate(&Item{}, &Order{}); err != nil {
		t.Fatal(err)
	}
	if err := db.Use(plugin); err != nil {
		t.Fatal(err)
	}
	if err := plugin.VerifySchema(t.Context(), db); err != nil {
		t.Error(err)
	}
}

func goBlocks(markdown string) []string {
	var blocks []string
	for {
		_, rest, ok := strings.Cut(markdown, "\n```go\n")
		if !ok {
			return blocks
		}
		block, after, ok := strings.Cut(rest, "\n```")
		if !ok {
			return append(blocks, rest)
		}
		blocks = append(blocks, block)
		markdown = after
	}
}

// flat drops indentation, alignment and blank lines.
func flat(code string) string {
	var b strings.Builder
	for line := range strings.Lines(code) {
		if fields := strings.Fields(line); len(fields) > 0 {
			b.WriteString("\n" + strings.Join(fields, " "))
		}
	}
	return b.String() + "\n"
}

func anyContains(sources []string, block string) bool {
	for _, s := range sources {
		if strings.Contains(s, block) {
			return true
		}
	}
	return false
}
