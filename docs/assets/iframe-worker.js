// Search from file://, where browsers start no worker: the worker's script runs in a hidden frame
// instead. On a server this file does nothing. The theme looks for the name IFrameWorker.
(() => {
  if (location.protocol !== "file:") return;
  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "search";
      frame.addEventListener("load", () => this.start(frame.contentWindow, String(url)), { once: true });
      document.body.append(frame);
    }
    start(inside, url) {
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inside.document.createElement("script");
      script.src = url;
      script.addEventListener("load", () => {
        this.send = (data) => inside.dispatchEvent(new MessageEvent("message", { data }));
        this.waiting.splice(0).forEach(this.send);
      });
      inside.document.body.append(script);
    }
    postMessage(data) {
      if (this.send) this.send(data);
      else this.waiting.push(data);
    }
    terminate() {}
  }
  window.IFrameWorker = window.Worker = IFrameWorker;
})();
