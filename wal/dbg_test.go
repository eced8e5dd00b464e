package wal
import ("testing";"fmt";"sort";"github.com/cockroachdb/pebble/v2/vfs";"cairn/wal/record")
var dbg bool
func TestDbg(t *testing.T){
 dbg=true
 for i:=range 3000 { fmt.Println("ROUND",i); if err:=crashRound(t,uint64(i%300));err!=nil{t.Fatal(err)} }
}
func dump(o Options){
 d,err:=readDirectory(o.FS,o.Dir)
 if err!=nil{fmt.Println(err);return}
 for _,s:=range d.segments{ 
 f,_:=o.FS.Open(o.FS.PathJoin(o.Dir,s.name))
 sc,_:=scanSegment(newWindow(f,windowBytes),&s.hdr,noLimit,0)
 fd,_:=search(newWindow(f,windowBytes),&s.hdr,sc.pos,0)
 bb:=make([]byte,64); f.ReadAt(bb,sc.pos); bc:=make([]byte,64); f.ReadAt(bc,12288-32); fmt.Printf("%x || %x\n",bb,bc); fmt.Printf("%s start %d prev %d synced %d id %c size %d rival %v end %d proven %d reason %s found %+v\n",s.name,s.hdr.Start,s.hdr.Prev,s.hdr.Synced,s.hdr.History.ID[0],s.size,d.rival(s),sc.end,sc.proven,sc.reason,fd)}
 for _,u:=range d.unused { b,_:=o.FS.(*vfs.MemFS).UnsafeGetFileDataBuffer(o.FS.PathJoin(o.Dir,u)); nz:=0; for _,c:=range b { if c!=0 {nz++} }; var h record.Header; e:=h.Decode(b[:min(len(b),8192)]); fmt.Println(u,len(b),nz,h.Sequence,e)}
 sort.Strings(d.unused)
 fmt.Println("unused",d.unused,"damaged",d.damaged,"touched",d.touched)
}
