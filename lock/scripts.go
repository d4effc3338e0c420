package lock

import (
	_ "embed"

	"github.com/holdfast-go/holdfast/internal/redisx"
)

var (
	//go:embed lua/acquire.lua
	acquireLua string
	//go:embed lua/renew.lua
	renewLua string
	//go:embed lua/release.lua
	releaseLua string
	//go:embed lua/handover.lua
	handoverLua string
	//go:embed lua/force.lua
	forceLua string
	//go:embed lua/inspect.lua
	inspectLua string
)

// scripts are what the Redis backend sends. They are immutable.
var scripts = struct{ acquire, renew, release, handover, force, inspect *redisx.Script }{
	acquire:  redisx.NewScript("lock/acquire.lua", acquireLua),
	renew:    redisx.NewScript("lock/renew.lua", renewLua),
	release:  redisx.NewScript("lock/release.lua", releaseLua),
	handover: redisx.NewScript("lock/handover.lua", handoverLua),
	force:    redisx.NewScript("lock/force.lua", forceLua),
	inspect:  redisx.NewScript("lock/inspect.lua", inspectLua),
}

func allScripts() []*redisx.Script {
	return []*redisx.Script{scripts.acquire, scripts.renew, scripts.release, scripts.handover, scripts.force, scripts.inspect}
}
